import { type Address, concat, getContractAddress, type Hex, keccak256, toHex } from 'viem'
import { type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import { baseFeeWei } from './evm.ts'
import type { FoundingEntry, FoundingStep } from './journal.ts'

/** The contracts that the chain starts with: creation code, with the constructor's arguments appended. */
export type ChainContracts = {
  readonly usdc: PlacedContract
  readonly systemLog: PlacedContract
  readonly gateway: { readonly creationCode: Hex }
}

/** A system contract of the chain, at an address that Arc chose. */
export type PlacedContract = { readonly address: Address; readonly creationCode: Hex }

/** The same for every chain, so that a reset chain starts identically. */
const genesisTime = Date.UTC(2026, 0, 1) / 1000
const deploymentGas = 10_000_000n
/** A trillion USDC: the founder pays for its deployments and gives the rest away. */
const founderWei = 10n ** 30n

/**
 * The account that deploys the contracts and runs the faucet. Its key is not secret, because it has no power: no contract gives it
 * a role. It is always the same, so the gateway has the same address in every sandbox.
 */
export function founderAccount(): PrivateKeyAccount {
  return privateKeyToAccount(keccak256(toHex('penny sandbox founder')))
}

/** Everything that happens before the first customer, signed and in order. */
export async function foundingOf(chainId: number, time: number, contracts: ChainContracts): Promise<FoundingEntry> {
  const founder = founderAccount()
  const sign = signer(founder, chainId)
  const deployed = (nonce: bigint) => getContractAddress({ from: founder.address, nonce })
  const { usdc, systemLog, gateway } = contracts
  const steps: FoundingStep[] = [
    { kind: 'funding', address: founder.address, wei: String(founderWei) },
    await sign(0, { data: usdc.creationCode, gas: deploymentGas }),
    { kind: 'placement', from: deployed(0n), to: usdc.address },
    await sign(1, { data: systemLog.creationCode, gas: deploymentGas }),
    { kind: 'placement', from: deployed(1n), to: systemLog.address },
    await sign(2, { data: gateway.creationCode, gas: deploymentGas }),
  ]
  return {
    kind: 'founding',
    version: 2,
    chainId,
    genesisTime,
    time,
    steps,
    addresses: { usdc: usdc.address, systemLog: systemLog.address, gateway: deployed(2n) },
    contractsHash: hashOf(contracts),
  }
}

/** Identifies a set of contracts. */
export function hashOf({ usdc, systemLog, gateway }: ChainContracts): Hex {
  const parts = [usdc.address, usdc.creationCode, systemLog.address, systemLog.creationCode, gateway.creationCode]
  return keccak256(concat(parts.map((part) => keccak256(part))))
}

function signer(founder: PrivateKeyAccount, chainId: number) {
  return async (nonce: number, call: { data: Hex; gas: bigint }): Promise<FoundingStep> => {
    const fees = { maxFeePerGas: baseFeeWei, maxPriorityFeePerGas: 0n }
    return {
      kind: 'transaction',
      raw: await founder.signTransaction({ type: 'eip1559', chainId, nonce, ...fees, ...call }),
    }
  }
}
