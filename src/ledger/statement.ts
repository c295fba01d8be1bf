import type { AccountRef } from '../account-ref.ts'
import type { Database } from '../db/database.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'

export const statementKinds = [
  'deposit',
  'inference',
  'search',
  'adjustment',
  'withdrawal',
  'withdrawal_returned',
  'withdrawal_fee_returned',
] as const
export type StatementKind = (typeof statementKinds)[number]

/** All movements of one kind in a span of time; of inference, those of one model. */
export type StatementLine = {
  readonly kind: StatementKind
  readonly model: string | undefined
  readonly count: number
  /** Above 0 is money in. */
  readonly amount: Usdc
}

export type Statement = {
  /** All the account's money, what open requests hold included. */
  readonly opening: Usdc
  readonly closing: Usdc
  readonly lines: readonly StatementLine[]
  /** Whether opening and lines sum to closing, which are read from different places of the ledger. */
  readonly addsUp: boolean
  readonly openedAt: Date
}

// Each movement once, at the instant at which it stands in the books. A withdrawal that failed went out and came back, so
// that a month that is over does not change afterwards; so did what the gateway did not take of its fee. Charges are in the hour in which their request began, as in all
// other sums over time.
const movements = `
  select 'deposit' as kind, '' as model, created_at as at, amount, 1 as times
    from deposits where partition = $1 and account_id = $2
  union all
  select 'withdrawal', '', created_at, -amount, 1 from withdrawals where partition = $1 and account_id = $2
  union all
  select 'withdrawal_returned', '', changed_at, amount, 1
    from withdrawals where partition = $1 and account_id = $2 and state = 'failed'
  union all
  select 'withdrawal_fee_returned', '', changed_at, fee_max - fee, 1
    from withdrawals where partition = $1 and account_id = $2 and state = 'confirmed' and fee < fee_max
  union all
  select 'adjustment', '', created_at, amount, 1 from adjustments where partition = $1 and account_id = $2
  union all
  select 'inference', model, hour, search_cost - charged, succeeded + failed + cancelled
    from usage_hours where partition = $1 and account_id = $2
  union all
  select 'search', '', hour, -search_cost, search_calls from usage_hours where partition = $1 and account_id = $2`

/**
 * What happened to an account's money from one instant to another, both on whole hours. The opening balance is the sum of
 * all that happened before; the closing balance is what the account has now, less all that happened since. One statement,
 * so that nothing happens in between.
 */
export async function readStatement(
  database: Database,
  { partition, accountId }: AccountRef,
  from: Date,
  to: Date,
): Promise<Statement> {
  const rows = await database.query<MovementRow>(
    `with m as (${movements}), a as (select gateway + credit + held as total, created_at from accounts where partition = $1 and id = $2)
     select m.kind, m.model, coalesce(sum(m.times) filter (where m.at >= $3 and m.at < $4), 0)::bigint as times,
            coalesce(sum(m.amount) filter (where m.at < $3), 0)::bigint as before,
            coalesce(sum(m.amount) filter (where m.at >= $3 and m.at < $4), 0)::bigint as during,
            coalesce(sum(m.amount) filter (where m.at >= $4), 0)::bigint as after, a.total, a.created_at as opened_at
       from a left join m on true group by m.kind, m.model, a.total, a.created_at order by m.model`,
    [partition, accountId, from, to],
  )
  const sum = (read: (row: MovementRow) => bigint) => rows.reduce((total, row) => total + read(row), 0n)
  const opening = sum(({ before }) => before)
  const closing = rows[0]!.total - sum(({ after }) => after)
  return {
    opening: fromAtomic(opening),
    closing: fromAtomic(closing),
    lines: statementKinds.flatMap((kind) => rows.filter((row) => row.kind === kind && hasMoved(row)).map(readLine)),
    addsUp: opening + sum(({ during }) => during) === closing,
    openedAt: rows[0]!.opened_at,
  }
}

/** What has no account's money in it is left out: refused requests, months without searches. */
function hasMoved({ times, during }: MovementRow): boolean {
  return times > 0n || during !== 0n
}

function readLine({ kind, model, times, during }: MovementRow): StatementLine {
  return { kind: kind!, model: model || undefined, count: Number(times), amount: fromAtomic(during) }
}

type MovementRow = {
  /** Null when nothing ever happened. */
  readonly kind: StatementKind | null
  readonly model: string | null
  readonly times: bigint
  readonly before: bigint
  readonly during: bigint
  readonly after: bigint
  readonly total: bigint
  readonly opened_at: Date
}
