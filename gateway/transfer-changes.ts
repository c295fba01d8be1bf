import type { Hex } from 'viem'
import type { Database } from '../src/db/database.ts'
import type { BatchReceipts } from './batch-receipts.ts'
import type { GatewayTerms } from './terms.ts'
import { proved, selectTransfers, type TransferAnswer, type TransferRow } from './transfers.ts'

export type ChangesQuery = {
  /** Undefined: from the first change on. */
  readonly after: string | undefined
  readonly from?: Hex | undefined
  readonly to?: Hex | undefined
  readonly pageSize: number
}

export type ChangesPage = {
  readonly transfers: readonly TransferAnswer[]
  /** Start of the next page. Valid for the life of this database. */
  readonly nextCursor: string
  /** More changes are already stored. */
  readonly hasMore: boolean
}

export type ChangesParts = {
  readonly database: Database
  readonly terms: GatewayTerms
  readonly receipts: BatchReceipts
}

/**
 * The transfers whose state changed after the cursor, in order of change, each once and in its current state: one that changes
 * again moves to the end. `from` and `to` filter the page after it was read, so the cost of a page does not depend on the number of
 * transfers, and a page may be empty while `hasMore` is true.
 */
export async function changedTransfers(parts: ChangesParts, query: ChangesQuery): Promise<ChangesPage> {
  const { database, terms, receipts } = parts
  const { after, from, to, pageSize } = query
  const [feed] = await database.query<{ id: string; last: bigint }>(
    'select feed as id, (select coalesce(max(change), 0)::int8 from transfers) as last from chain',
  )
  const start = after === undefined ? 0n : readCursor(after, feed!.id)
  if (start > feed!.last) throw new CursorRefusedError()
  const changed = `(select * from transfers where change > $1 order by change limit $2) transfers`
  const rows = await database.query<TransferRow & { change: bigint }>(
    `select * from (${selectTransfers(changed, 'change')}) page order by change`,
    [start, pageSize],
  )
  const transfers: TransferAnswer[] = []
  for (const row of rows) {
    if ((from ?? row.payer) !== row.payer || (to ?? row.payee) !== row.payee) continue
    transfers.push(await proved(row, terms, receipts))
  }
  const nextCursor = cursorOf(feed!.id, rows.at(-1)?.change ?? start)
  return { transfers, nextCursor, hasMore: rows.length === pageSize }
}

// A cursor is 24 bytes: the database's id, and the number of the change.
const feedBytes = 16
const cursorPattern = /^[\w-]{32}$/

function cursorOf(feed: string, change: bigint): string {
  const bytes = Buffer.alloc(feedBytes + 8)
  bytes.write(feed.replaceAll('-', ''), 'hex')
  bytes.writeBigInt64BE(change, feedBytes)
  return bytes.toString('base64url')
}

function readCursor(cursor: string, feed: string): bigint {
  if (!cursorPattern.test(cursor)) throw new CursorRefusedError()
  const change = Buffer.from(cursor, 'base64url').readBigInt64BE(feedBytes)
  if (change < 0n || cursorOf(feed, change) !== cursor) throw new CursorRefusedError()
  return change
}

/** The cursor is from another database, or ahead of this one: the database was replaced or restored from a backup. */
export class CursorRefusedError extends Error {
  constructor() {
    super('changedAfter is not a cursor of this gateway. Start without a cursor: changedAfter=')
    this.name = 'CursorRefusedError'
  }
}
