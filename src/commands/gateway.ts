import { logTo, startGateway } from '../../gateway/server.ts'
import { removeSecrets } from '../config/config.ts'
import { createLog } from '../process/log.ts'
import { findSettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import { type Command, CommandError } from './command.ts'
import { aborted, watchStopSignals } from './stop-signal.ts'

const weiPerGwei = 1_000_000_000n

export const gatewayCommand: Command = {
  reader: 'gateway',
  usage: [
    [
      'penny gateway',
      'Runs until Ctrl-C or SIGTERM. Several gateways on one database share the work. Needs GATEWAY_RELAYER_KEY, GATEWAY_TOKEN, DATABASE_URL, CHAIN_RPC_URL, USDC_ADDRESS and GATEWAY_WALLET_ADDRESS. Settles for GATEWAY_PAYEES (default: the seller of the service)',
    ],
  ],
  options: {},
  async run({ config, output }) {
    removeSecrets()
    process.title = 'penny-gateway'
    const { stop } = watchStopSignals()
    const log = createLog(config.logLevel)
    const { rpcUrl, gasPriceMaxGwei, payees = [findSeller(config.dataDir)], ...options } = config.gateway!
    const gateway = await startGateway({
      ...options,
      payees,
      withdrawalMin: config.withdrawalMin,
      chainRpcUrl: rpcUrl,
      gasPriceMax: BigInt(gasPriceMaxGwei) * weiPerGwei,
      ...logTo(log),
    })
    output.write(output.json ? `${JSON.stringify({ url: gateway.url })}\n` : `The gateway is ready at ${gateway.url}\n`)
    await aborted(stop)
    await gateway.stop()
    log.flush()
    return 0
  },
}

/** The gateway has no master key to derive the seller's address from. A service on the same data folder has stored the address. */
function findSeller(dataDir: string): string {
  const seller = findSettlementEndpoints(dataDir)?.terms.seller
  if (seller !== undefined) return seller
  throw new CommandError(
    'Set GATEWAY_PAYEES to the seller address of the service. This gateway settles payments to it.',
  )
}
