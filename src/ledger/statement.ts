import type { AccountRef } from '../db/account-ref.ts'
import type { Connection, Database } from '../db/database.ts'
import { rowsOf } from '../db/rows.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'
import { withdrawalKinds } from './states.ts'

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

/** All movements of one kind in a period; for inference, those of one model. */
export type StatementLine = {
  readonly kind: StatementKind
  readonly model: string | undefined
  readonly count: number
  /** Above 0 is money in. */
  readonly amount: Usdc
}

/** The charges of one key in the period. Below 0, like every charge of a statement. */
export type KeyLine = {
  readonly keyId: string
  readonly name: string
  readonly hint: string
  readonly requests: number
  readonly searches: number
  readonly inference: Usdc
  readonly search: Usdc
}

export type Statement = {
  /** All the account's money, including open holds. */
  readonly opening: Usdc
  readonly closing: Usdc
  readonly lines: readonly StatementLine[]
  /** The same charges by key, largest first: they sum to the lines of inference and of search. */
  readonly keys: readonly KeyLine[]
  /** Whether opening plus lines equals closing. They come from different tables of the ledger. */
  readonly addsUp: boolean
  readonly openedAt: Date
}

// Each movement once, at its booking time. A failed withdrawal is booked out and back in, so that a past month never changes; so
// is the unused part of the gateway's fee. Charges belong to the hour in which their request began, as in all other sums over time.
const movements = `
  select 'deposit' as kind, '' as model, created_at as at, amount, 1 as times
    from deposits where partition = $1 and account_id = $2
  union all
  select 'withdrawal', '', created_at, -amount, 1 from transfers where partition = $1 and account_id = $2 and kind in ${withdrawalKinds}
  union all
  select 'withdrawal_returned', '', changed_at, amount, 1
    from transfers where partition = $1 and account_id = $2 and kind in ${withdrawalKinds} and state = 'failed'
  union all
  select 'withdrawal_fee_returned', '', changed_at, fee_max - fee, 1
    from transfers where partition = $1 and account_id = $2 and kind in ${withdrawalKinds} and state = 'confirmed' and fee < fee_max
  union all
  select 'adjustment', '', created_at, amount, 1 from adjustments where partition = $1 and account_id = $2
  union all
  select 'inference', model, hour, search_cost - charged, succeeded + failed + cancelled
    from usage_hours where partition = $1 and account_id = $2
  union all
  select 'search', '', hour, -search_cost, search_calls from usage_hours where partition = $1 and account_id = $2`

/**
 * The movements of an account's money between two instants, both on whole hours. The opening balance is the sum of all earlier
 * movements; the closing balance is the current balance less all later movements. Reads one snapshot, so that nothing changes in
 * between.
 */
export async function readStatement(database: Database, account: AccountRef, from: Date, to: Date): Promise<Statement> {
  return database.transaction(
    async (connection) => {
      const keys = await readKeys(connection, account, from, to)
      return { ...(await readMovements(connection, account, from, to)), keys }
    },
    { isolation: 'repeatable read', readOnly: true },
  )
}

async function readKeys(
  connection: Connection,
  { partition, accountId }: AccountRef,
  from: Date,
  to: Date,
): Promise<readonly KeyLine[]> {
  return rowsOf<KeyLine>(
    connection.query(
      `select u.key_id, k.name, k.hint, u.requests, u.searches, u.inference, u.search
       from (select key_id, sum(succeeded + failed + cancelled)::float8 as requests, sum(search_calls)::float8 as searches,
                    sum(search_cost - charged)::bigint as inference, -sum(search_cost)::bigint as search
               from usage_hours where partition = $1 and account_id = $2 and hour >= $3 and hour < $4 group by key_id) u
       join api_keys k on k.partition = $1 and k.id = u.key_id
      where u.requests > 0 or u.inference <> 0 or u.search <> 0
      order by u.inference + u.search, k.created_at, u.key_id`,
      [partition, accountId, from, to],
    ),
  )
}

async function readMovements(
  connection: Connection,
  { partition, accountId }: AccountRef,
  from: Date,
  to: Date,
): Promise<Omit<Statement, 'keys'>> {
  const rows = await rowsOf<Movement>(
    connection.query(
      `with m as (${movements}), a as (select gateway + credit + held as total, created_at from accounts where partition = $1 and id = $2)
     select m.kind, m.model, coalesce(sum(m.times) filter (where m.at >= $3 and m.at < $4), 0)::bigint as times,
            coalesce(sum(m.amount) filter (where m.at < $3), 0)::bigint as before,
            coalesce(sum(m.amount) filter (where m.at >= $3 and m.at < $4), 0)::bigint as during,
            coalesce(sum(m.amount) filter (where m.at >= $4), 0)::bigint as after, a.total, a.created_at as opened_at
       from a left join m on true group by m.kind, m.model, a.total, a.created_at order by m.model`,
      [partition, accountId, from, to],
    ),
  )
  const sum = (read: (row: Movement) => bigint) => rows.reduce((total, row) => total + read(row), 0n)
  const opening = sum(({ before }) => before)
  const closing = rows[0]!.total - sum(({ after }) => after)
  return {
    opening: fromAtomic(opening),
    closing: fromAtomic(closing),
    lines: statementKinds.flatMap((kind) =>
      rows
        // Without the lines that moved no money: refused requests, months without searches.
        .filter((row) => row.kind === kind && (row.times > 0n || row.during !== 0n))
        .map(({ model, times, during }) => ({
          kind,
          model: model || undefined,
          count: Number(times),
          amount: fromAtomic(during),
        })),
    ),
    addsUp: opening + sum(({ during }) => during) === closing,
    openedAt: rows[0]!.openedAt,
  }
}

type Movement = {
  /** Undefined when there was never any movement. */
  readonly kind: StatementKind | undefined
  readonly model: string | undefined
  readonly times: bigint
  readonly before: bigint
  readonly during: bigint
  readonly after: bigint
  readonly total: bigint
  readonly openedAt: Date
}
