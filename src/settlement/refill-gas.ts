import type { Database } from '../db/database.ts'
import { writeGauge } from '../ledger/ledger-numbers.ts'
import { findLatestPayout } from '../ledger/payouts.ts'
import { countSweepDemand } from '../ledger/sweeps.ts'
import { readWithdrawalFeeMax } from '../ledger/withdrawals.ts'
import { fromAtomic } from '../money/usdc.ts'
import type { Address } from '../signer/address.ts'
import { refillFactorMax, type SigningTerms } from '../signer/signing-terms.ts'
import type { Chain } from './chain.ts'
import type { GatewayClient } from './gateway-client.ts'
import { PayoutTooLargeError, requestPayout } from './payout.ts'

export type RefillParts = {
  readonly database: Database
  readonly chain: Pick<Chain, 'gasBalance' | 'gasPrice'>
  readonly gatewayClient: Pick<GatewayClient, 'balance'>
  readonly signingTerms: Pick<SigningTerms, 'seller'>
  readonly relayer: { readonly address: Address }
  readonly sweepMin: bigint
  readonly onAlarm: (what: string, details: object) => void
}

/** What the log says; docs/runbooks/lost-relayer-gas.md explains each. */
export const refillAlarms = {
  shortOfGas: 'the relayer is short of gas',
  tooLittleRevenue: 'too little revenue',
  stillLow: 'the relayer’s gas is still low after a refill',
} as const

const weiPerAtomic = 10n ** 12n
const refillSecondsMin = 3_600
/** Measured, rounded up. */
const sweepGas = 125_000n

/**
 * The relayer's gas is USDC, so it is refilled from revenue. Raises an alarm when revenue is too low, and when gas is low although the
 * last refill was paid: with a stalled node, or a chain whose coin is not USDC, refills would drain all revenue. The amount follows the
 * sweeps of the last hour and those that wait.
 */
export async function refillGas(parts: RefillParts, gasMin: bigint): Promise<void> {
  const { database, chain, gatewayClient, relayer, signingTerms, onAlarm } = parts
  const left = (await chain.gasBalance(relayer.address)) / weiPerAtomic
  await writeGauge(database, 'relayer_gas_micro_usdc', Number(left))
  if (left >= gasMin) return
  const latest = await findLatestPayout(database, relayer.address)
  if (latest?.isOpen === true) return
  const short = { relayer: relayer.address, atomic: left.toString() }
  if (latest !== undefined && latest.paidSecondsAgo < refillSecondsMin) {
    const look = 'does CHAIN_RPC_URL show the refill, and is USDC its coin?'
    onAlarm(refillAlarms.stillLow, { ...short, refill: latest.id, look })
    return
  }
  const readBalance = () => gatewayClient.balance(signingTerms.seller)
  const fee = await readWithdrawalFeeMax(database)
  const request = (amount: bigint) =>
    requestPayout(database, fromAtomic(amount + fee), relayer.address, readBalance).catch((error: unknown) => {
      if (error instanceof PayoutTooLargeError) return undefined
      throw error
    })
  const refill = (await request(await refillAmount(parts, gasMin))) ?? (await request(gasMin))
  onAlarm(refillAlarms.shortOfGas, { ...short, refill: refill ?? refillAlarms.tooLittleRevenue })
}

async function refillAmount({ database, chain, sweepMin }: RefillParts, gasMin: bigint): Promise<bigint> {
  const sweeps = BigInt(await countSweepDemand(database, sweepMin))
  const cost = (sweeps * sweepGas * (await chain.gasPrice())) / weiPerAtomic
  // A refill pays for about 400 sweeps at least, and for five times as many at most.
  if (cost <= gasMin) return gasMin
  return cost < refillFactorMax * gasMin ? cost : refillFactorMax * gasMin
}
