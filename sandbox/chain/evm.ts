import { env } from 'node:process'
import { createHardhatRuntimeEnvironment } from 'hardhat/hre'

/** The EVM, without our rules: JSON-RPC in, JSON-RPC out. Its state is in memory only. */
export type Evm = {
  request(method: string, ...params: readonly unknown[]): Promise<unknown>
  close(): Promise<void>
}

/** Arc's lowest base fee, and the only one here: an idle chain never leaves it. */
export const baseFeeWei = 20_000_000_000n

/** The gas limit of a block, as on Arc. Osaka's own rule limits a transaction to 2^24. */
const blockGasMax = 30_000_000

const network = 'sandbox'

/**
 * Starts an empty chain. Everything that could differ between two starts is fixed here, so that the same transactions at the same
 * times give the same blocks with the same hashes.
 */
export async function openEvm(options: { readonly chainId: number; readonly genesisTime: number }): Promise<Evm> {
  // Hardhat sends telemetry when it runs in a terminal. A sandbox must make no network calls.
  env.HARDHAT_DISABLE_TELEMETRY = 'true'
  const environment = await createHardhatRuntimeEnvironment(
    {
      networks: {
        [network]: {
          type: 'edr-simulated',
          chainType: 'l1',
          chainId: options.chainId,
          hardfork: 'osaka',
          // The chain holds no keys: senders sign their own transactions.
          accounts: [],
          initialDate: new Date(options.genesisTime * 1000),
          initialBaseFeePerGas: baseFeeWei,
          blockGasLimit: blockGasMax,
          // Arc's blocks may share a second, and a transaction that reverts is mined like any other.
          allowBlocksWithSameTimestamp: true,
          throwOnTransactionFailures: false,
          mining: { auto: true, interval: 0 },
        },
      },
    },
    {},
    import.meta.dirname,
  )
  const connection = await environment.network.create(network)
  return {
    request: (method, ...params) => connection.provider.request({ method, params: [...params] }),
    close: () => connection.close(),
  }
}
