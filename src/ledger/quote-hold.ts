import type { Database } from '../db/database.ts'
import { rowOf } from '../db/rows.ts'
import { type Usdc, zero } from '../money/usdc.ts'
import type { HoldRefusal, HoldRefusalCode, Payer } from './hold-calls.ts'

/** The ledger's current decision about a hold. Not binding: only a hold reserves money. */
export type HoldQuote = {
  readonly fromCredit: Usdc
  readonly spendable: Usdc
  readonly inFlight: Usdc
  /** What the key may still spend in its window; undefined when it has no limit. */
  readonly limitLeft: Usdc | undefined
  readonly refusal: HoldRefusal | undefined
}

/** Applies the ledger's admission rule without a lock or a write: cheap enough to run before unpaid work. */
export async function quoteHold(
  database: Database,
  { partition, accountId, keyId }: Payer,
  amount: Usdc,
  cap: Usdc,
): Promise<HoldQuote> {
  const row = await rowOf<Partial<Omit<HoldQuote, 'refusal'>> & { readonly decision: string }>(
    database.queryPrepared(
      'quote_hold',
      'select decision, from_credit, spendable, in_flight, limit_left from quote_hold($1, $2, $3, $4, $5)',
      [partition, accountId, keyId, amount, cap],
    ),
  )
  const { decision, fromCredit = zero, spendable = zero, inFlight = zero, limitLeft } = row!
  const numbers = { fromCredit, spendable, inFlight, limitLeft }
  return {
    ...numbers,
    refusal: decision === 'held' ? undefined : { ...numbers, code: decision as HoldRefusalCode },
  }
}
