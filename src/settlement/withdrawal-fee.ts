import type { Database } from '../db/database.ts'
import { setWithdrawalFeeMax } from '../ledger/withdrawals.ts'
import { saltOf } from '../signer/nonce.ts'
import { burnIntent, type SigningTerms } from '../signer/signing-terms.ts'
import type { GatewayClient } from './gateway-client.ts'

export type FeeParts = {
  readonly database: Database
  readonly gatewayClient: GatewayClient
  readonly signingTerms: SigningTerms
  /** The highest fee that is accepted; the signer has the same limit. 0: the gateway has no fee. */
  readonly feeMax: bigint
  readonly onAlarm: (what: string, details: object) => void
}

// The fee may rise between request and signature. The unused part is refunded, so a quarter more costs the customer nothing.
const headroom = 4n

/** Reads the gateway's current fee and stores it for new withdrawals. */
export async function watchWithdrawalFee(parts: FeeParts): Promise<bigint> {
  const { database, gatewayClient, signingTerms, feeMax, onAlarm } = parts
  // The fee does not depend on depositor or amount. This intent is never signed.
  const example = burnIntent(signingTerms, {
    depositor: signingTerms.seller,
    recipient: signingTerms.seller,
    value: 1_000_000n,
    maxFee: feeMax,
    salt: saltOf('payout', 'estimate'),
  })
  const asked = feeMax === 0n ? 0n : await gatewayClient.estimateFee(example)
  if (asked > feeMax) onAlarm('the gateway fee is above the limit', { asked: `${asked}`, most: `${feeMax}` })
  const most = asked + (asked + headroom - 1n) / headroom
  const fee = most < feeMax ? most : feeMax
  await setWithdrawalFeeMax(database, fee)
  return fee
}
