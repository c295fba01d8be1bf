import type { Database } from '../db/database.ts'
import { setWithdrawalFeeMax } from '../ledger/withdrawals.ts'
import { saltOf } from '../signer/nonce.ts'
import { burnIntent, type SigningTerms } from '../signer/signing-terms.ts'
import type { GatewayClient, GatewayWithdrawal } from './gateway-client.ts'

export type FeeParts = {
  readonly database: Database
  readonly gatewayClient: GatewayClient
  readonly signingTerms: SigningTerms
  /** More than this is not paid for a withdrawal, whatever the gateway asks: the signer has the same limit. 0: it has no fee. */
  readonly feeMax: bigint
  readonly onAlarm: (what: string, details: object) => void
}

// An order may be signed a while after it was made. What is too much comes back, so a quarter more costs nobody anything.
const headroom = 4n

/** Asks the gateway what it keeps of a withdrawal and writes it down for those that are ordered from now on. */
export async function watchWithdrawalFee(parts: FeeParts): Promise<bigint> {
  const { database, gatewayClient, signingTerms, feeMax, onAlarm } = parts
  // On one chain the fee is the same for everybody and for every amount. Nobody signs this one.
  const example = burnIntent(signingTerms, {
    depositor: signingTerms.seller,
    recipient: signingTerms.seller,
    value: 1_000_000n,
    maxFee: feeMax,
    salt: saltOf('payout', 'estimate'),
  })
  const asked = feeMax === 0n ? 0n : await gatewayClient.estimateFee(example)
  if (asked > feeMax) onAlarm('the gateway asks for too high a fee', { asked: `${asked}`, most: `${feeMax}` })
  const most = asked + (asked + headroom - 1n) / headroom
  const fee = most < feeMax ? most : feeMax
  await setWithdrawalFeeMax(database, fee)
  return fee
}

/** What the gateway took of an order that is paid. Undefined when it does not say so, or says what its contract forbids. */
export function feeTaken({ fee }: Pick<GatewayWithdrawal, 'fee'>, feeMax: bigint): bigint | undefined {
  if (feeMax === 0n) return 0n
  return fee === undefined || fee > feeMax ? undefined : fee
}
