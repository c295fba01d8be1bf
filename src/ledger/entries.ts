import { plainArray } from '../db/array-literal.ts'
import type { Database } from '../db/database.ts'
import { rowsOf } from '../db/rows.ts'
import type { EntryKind } from '../receipts/entry.ts'
import type { RequestId } from './request-id.ts'

/** An entry of an account: an ended request, or an adjustment. A receipt's content, in the ledger's terms. */
export type LedgerEntry = {
  readonly number: bigint
  readonly kind: EntryKind
  /** The request that the entry is, or that the adjustment is about. */
  readonly requestId: RequestId | undefined
  readonly createdAt: Date
  readonly endedAt: Date
  readonly status: string
  readonly model: string
  readonly priceVersion: string
  readonly promptTokens: number
  readonly completionTokens: number
  readonly searchCalls: number
  readonly quote: bigint
  readonly fromCredit: bigint
  /** The charge; below 0 it is a refund. */
  readonly amount: bigint
}

/** Consecutive entries of one account. */
export type EntryRange = {
  readonly partition: number
  readonly accountId: string
  readonly firstEntry: bigint
  readonly lastEntry: bigint
}

/** The entries of a range, in order. Entries never change, so repeated reads return the same. */
export async function readEntries(database: Database, range: EntryRange): Promise<readonly LedgerEntry[]> {
  const entries = await readKeptEntries(database, range)
  requireWhole(range, entries)
  return entries
}

/** Throws when entries of the range are missing. */
export function requireWhole({ accountId, firstEntry, lastEntry }: EntryRange, entries: readonly LedgerEntry[]): void {
  if (BigInt(entries.length) === lastEntry - firstEntry + 1n) return
  throw new Error(`account ${accountId} has ${entries.length} of the entries ${firstEntry} to ${lastEntry}`)
}

/** The same without archived entries. */
export async function readKeptEntries(database: Database, range: EntryRange): Promise<readonly LedgerEntry[]> {
  const [entries] = await readKeptEntriesOf(database, range.partition, [range])
  return entries!
}

/** The same for several ranges of one partition, in order, in one statement. */
export async function readKeptEntriesOf(
  database: Database,
  partition: number,
  ranges: readonly EntryRange[],
): Promise<readonly (readonly LedgerEntry[])[]> {
  const rows = await rowsOf<LedgerEntry & { readonly place: number }>(
    database.queryPrepared('read_entries', entriesOfRanges, [
      partition,
      plainArray(ranges.map(({ accountId }) => accountId)),
      plainArray(ranges.map(({ firstEntry }) => firstEntry)),
      plainArray(ranges.map(({ lastEntry }) => lastEntry)),
    ]),
  )
  const found: LedgerEntry[][] = ranges.map(() => [])
  for (const { place, ...entry } of rows) found[place - 1]!.push(entry)
  return found
}

const entriesOfRanges = `
  select u.place::int as place, e.*
    from unnest($2::uuid[], $3::bigint[], $4::bigint[]) with ordinality as u (account_id, first, last, place)
   cross join lateral (
  select r.entry as number, 'request' as kind, r.id as request_id, r.created_at, r.ended_at, r.status,
         coalesce(r.model, '') as model, coalesce(r.price_version, '') as price_version,
         coalesce(r.prompt_tokens, 0) as prompt_tokens, coalesce(r.completion_tokens, 0) as completion_tokens,
         r.search_calls::int as search_calls, r.quote, r.from_credit, r.charged as amount
    from requests r where r.partition = $1 and r.account_id = u.account_id and r.entry between u.first and u.last
   union all
  select x.entry, x.kind, x.request_id, x.created_at, x.created_at, '', '', '', 0, 0, 0, 0, 0, -x.amount
    from adjustments x where x.partition = $1 and x.account_id = u.account_id and x.entry between u.first and u.last) e
   order by u.place, e.number`
