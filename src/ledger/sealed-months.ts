import type { Connection, Database } from '../db/database.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import { OperatorError, ServiceError } from '../errors.ts'
import type { Usdc } from '../money/usdc.ts'
import { firstDay, type Month } from './month.ts'
import { type RequestId, timeOf } from './request-id.ts'

/** A month whose requests were audited for the last time. The ledger keeps their sums, so the requests may be deleted. */
export type SealedMonth = {
  readonly month: Month
  readonly requests: number
  readonly charged: Usdc
  /** The end of the hash chain over its requests, see `month-file.ts`. */
  readonly root: Buffer
  readonly sealedAt: Date
  /** When its requests were deleted. */
  readonly droppedAt: Date | undefined
}

/** SQL: the lowest id after all sealed months. Months are sealed in order. */
export const firstUnsealedId = `(select coalesce(first_request_id((max(m.month) + interval '1 month') at time zone 'UTC'),
  '00000000-0000-0000-0000-000000000000') from sealed_months m)`

/** Oldest first. */
export async function listSealedMonths(connection: Connection): Promise<readonly SealedMonth[]> {
  return rowsOf<SealedMonth>(connection.query(`select ${sealedColumns} from sealed_months m order by m.month`))
}

export async function findSealedMonth(connection: Connection, month: Month): Promise<SealedMonth | undefined> {
  return rowOf<SealedMonth>(
    connection.query(`select ${sealedColumns} from sealed_months m where m.month = $1`, [firstDay(month)]),
  )
}

const sealedColumns = `to_char(m.month, 'YYYY-MM') as month, m.requests::float8 as requests, m.charged, m.root, m.sealed_at, m.dropped_at`

/** Requests before this instant are archived; undefined when none are. Months are dropped in order. */
export async function readArchivedBefore(connection: Connection): Promise<Date | undefined> {
  const row = await rowOf<{ readonly before: Date | undefined }>(
    connection.query(
      `select (max(m.month) + interval '1 month') at time zone 'UTC' as before from sealed_months m where m.dropped_at is not null`,
    ),
  )
  return row!.before
}

/** Throws when the request belongs to an archived month. Called when a request was not found. */
export async function checkNotArchived(database: Database, id: RequestId): Promise<void> {
  const before = await readArchivedBefore(database)
  if (before !== undefined && timeOf(id) < before.getTime()) throw new RequestArchivedError(id, before)
}

export class RequestArchivedError extends ServiceError {
  constructor(id: RequestId, before: Date) {
    const month = new Date(timeOf(id)).toISOString().slice(0, 7)
    const day = before.toISOString().slice(0, 10)
    super(
      'request_archived',
      `The requests of ${month} are archived: details before ${day} are no longer in this service. Totals in usage and statements remain, and exported receipts stay valid. Ask the operator for the archived request.`,
      { extra: { archived_before: before.toISOString() } },
    )
  }
}

/** The hashes of all entries of a payment of which only some entries are archived. */
export async function readLeaves(
  database: Database,
  { partition, accountId, number }: { readonly partition: number; readonly accountId: string; readonly number: bigint },
): Promise<readonly Buffer[]> {
  const [row] = await database.query<{ leaves: Buffer }>(
    'select leaves from sealed_payments where partition = $1 and account_id = $2 and number = $3 and leaves is not null',
    [partition, accountId, number],
  )
  if (row === undefined) throw new Error(`payment ${number} of account ${accountId} has no entries and no leaves`)
  const { leaves } = row
  return Array.from({ length: leaves.length / hashBytes }, (_, place) =>
    leaves.subarray(place * hashBytes, (place + 1) * hashBytes),
  )
}

const hashBytes = 32

/** The last payment of an account with an archived entry: its entries are no longer complete. */
export async function findLastArchivedPayment(
  database: Database,
  { partition, accountId }: { readonly partition: number; readonly accountId: string },
): Promise<{ readonly number: bigint; readonly lastEntry: bigint; readonly root: Buffer } | undefined> {
  return rowOf<{ readonly number: bigint; readonly lastEntry: bigint; readonly root: Buffer }>(
    database.query(
      `select p.number, p.last_entry, p.root
       from sealed_payments s
       join sealed_months m on m.month = s.month and m.dropped_at is not null
       join payments p on p.partition = s.partition and p.account_id = s.account_id and p.number = s.number
      where s.partition = $1 and s.account_id = $2 order by p.number desc limit 1`,
      [partition, accountId],
    ),
  )
}

/** Why a month cannot be sealed, exported or dropped. */
export class MonthError extends OperatorError {}
