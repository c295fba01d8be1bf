import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'
import { earliestRequestId, type RequestId } from './request-id.ts'
import { type LedgerRequest, type RequestRow, readRequest, requestColumns, requestJoins } from './requests.ts'

/** AND between fields, OR within one. An undefined field filters nothing. */
export type RequestFilter = {
  readonly statuses?: readonly LedgerRequest['status'][] | undefined
  readonly errorCodes?: readonly string[] | undefined
  readonly models?: readonly string[] | undefined
  readonly keyIds?: readonly string[] | undefined
  readonly hasSearch?: boolean | undefined
  readonly stream?: boolean | undefined
  readonly chargedMin?: Usdc | undefined
  readonly from?: Date | undefined
  /** Exclusive. */
  readonly to?: Date | undefined
  readonly found?: { readonly id: RequestId } | { readonly txHash: Buffer } | undefined
}

export type PageOptions = {
  /** The cursor: the previous page's `next`. */
  readonly below?: RequestId | undefined
  readonly limit: number
  /** A page reads at most this many rows, however rare the matches: it may come back short, with a cursor to continue. */
  readonly lookedAtMax?: number
}

export type RequestPage = {
  readonly rows: readonly LedgerRequest[]
  /** The next page's cursor; undefined after the last page. */
  readonly next: RequestId | undefined
}

export type RequestTotals = {
  /** Admitted requests: all but the refused ones. */
  readonly requests: number
  readonly refused: number
  readonly charged: Usdc
  readonly quote: Usdc
  readonly search: Usdc
  readonly promptTokens: number
  readonly completionTokens: number
  readonly searchCalls: number
  /** Whether every match was summed. */
  readonly complete: boolean
}

const lookedAtMaxDefault = 10_000
const summedMax = 25_000

/** The newest matches below the cursor. */
export async function listRequests(
  database: Database,
  account: AccountRef,
  filter: RequestFilter,
  page: PageOptions,
): Promise<RequestPage> {
  const { indexed, others, values } = conditionsOf(account, filter, page.below)
  const { lookedAtMax = lookedAtMaxDefault } = page
  const limit = page.limit + 1
  const lookedAt = others.length === 0 ? limit : lookedAtMax
  const partition = `$${values.length + 1}`
  const rows = await rowsOf<RequestRow>(
    database.query(
      `with page as materialized (
       select r.id
         from (select * from request_log r where ${all(indexed)} order by r.id desc limit ${lookedAt}) r
        where ${all(others)} order by r.id desc limit ${limit})
     select ${requestColumns} from page join request_log r on r.partition = ${partition} and r.id = page.id ${requestJoins(partition)}
      order by r.id desc`,
      [...values, account.partition],
    ),
  )
  const shown = rows.slice(0, page.limit).map(readRequest)
  if (rows.length === limit) return { rows: shown, next: shown.at(-1)!.id }
  if (others.length === 0) return { rows: shown, next: undefined }
  // The rows read had less than a page of matches; there may be more below the last of them.
  const [last] = await database.query<{ id: RequestId }>(
    `select r.id from request_log r where ${all(indexed)} order by r.id desc offset ${lookedAtMax - 1} limit 1`,
    values.slice(0, indexed.filter((condition) => condition.includes('$')).length),
  )
  return { rows: shown, next: last?.id }
}

/** Every match, newest first, read page by page while it is consumed. A page is empty when many rows were read and none matched. */
export async function* readAllRequests(
  database: Database,
  account: AccountRef,
  filter: RequestFilter,
): AsyncGenerator<readonly LedgerRequest[]> {
  let below: RequestId | undefined
  do {
    const page = await listRequests(database, account, filter, { below, limit: 1000 })
    yield page.rows
    below = page.next
  } while (below !== undefined)
}

/** Sums over the matches. Uses the hourly sums when the filter has only keys, models and whole hours; otherwise reads the rows. */
export async function sumRequests(
  database: Database,
  account: AccountRef,
  filter: RequestFilter,
): Promise<RequestTotals> {
  const { statuses, errorCodes, hasSearch, stream, chargedMin, found } = filter
  const plain = [statuses, errorCodes, hasSearch, stream, chargedMin, found].every((member) => member === undefined)
  if (!plain) return sumRows(database, account, filter)
  const from = filter.from === undefined ? undefined : nextHour(filter.from)
  const to = filter.to === undefined ? undefined : thisHour(filter.to)
  if (from !== undefined && to !== undefined && from >= to) return sumRows(database, account, filter)
  const parts = [
    sumHours(database, account, { ...filter, from, to }),
    sumOpen(database, account, { ...filter, from, to }),
  ]
  if (from !== undefined) parts.push(sumRows(database, account, { ...filter, to: from }))
  if (to !== undefined) parts.push(sumRows(database, account, { ...filter, from: to }))
  return (await Promise.all(parts)).reduce(add)
}

async function sumRows(database: Database, account: AccountRef, filter: RequestFilter): Promise<RequestTotals> {
  const { indexed, others, values } = conditionsOf(account, filter, undefined)
  const row = await rowOf<RequestTotals>(
    database.query(
      `select ${sums},
            (select r.id from request_log r where ${all(indexed)} order by r.id desc offset ${summedMax} limit 1) is null as complete
       from (select * from request_log r where ${all(indexed)} order by r.id desc limit ${summedMax}) r where ${all(others)}`,
      values,
    ),
  )
  return row!
}

/** Open requests are not in the hourly sums yet. */
async function sumOpen(database: Database, account: AccountRef, filter: RequestFilter): Promise<RequestTotals> {
  const { indexed, others, values } = conditionsOf(account, filter, undefined)
  const row = await rowOf<RequestTotals>(
    database.query(
      `select ${sums}, true as complete from request_log r where r.status = 'held' and ${all([...indexed, ...others])}`,
      values,
    ),
  )
  return row!
}

async function sumHours(database: Database, account: AccountRef, filter: RequestFilter): Promise<RequestTotals> {
  const row = await rowOf<RequestTotals>(
    database.query(
      `select coalesce(sum(succeeded + failed + cancelled), 0)::float8 as requests, coalesce(sum(refused), 0)::float8 as refused,
            coalesce(sum(charged), 0)::bigint as charged, coalesce(sum(quote), 0)::bigint as quote,
            coalesce(sum(search_cost), 0)::bigint as search, coalesce(sum(prompt_tokens), 0)::float8 as prompt_tokens,
            coalesce(sum(completion_tokens), 0)::float8 as completion_tokens,
            coalesce(sum(search_calls), 0)::float8 as search_calls, true as complete
       from usage_hours
      where partition = $1 and account_id = $2 and ($3::timestamptz is null or hour >= $3) and ($4::timestamptz is null or hour < $4)
        and ($5::text[] is null or model = any ($5)) and ($6::uuid[] is null or key_id = any ($6))`,
      [
        account.partition,
        account.accountId,
        filter.from ?? null,
        filter.to ?? null,
        filter.models ?? null,
        filter.keyIds ?? null,
      ],
    ),
  )
  return row!
}

const sums = `(count(*) filter (where r.status <> 'refused'))::float8 as requests, (count(*) filter (where r.status = 'refused'))::float8 as refused,
  coalesce(sum(r.charged), 0)::bigint as charged,
  coalesce(sum(r.quote), 0)::bigint as quote, coalesce(sum(r.search_cost), 0)::bigint as search,
  coalesce(sum(r.prompt_tokens), 0)::float8 as prompt_tokens,
  coalesce(sum(r.completion_tokens), 0)::float8 as completion_tokens, coalesce(sum(r.search_calls), 0)::float8 as search_calls`

function add(a: RequestTotals, b: RequestTotals): RequestTotals {
  return {
    requests: a.requests + b.requests,
    refused: a.refused + b.refused,
    charged: fromAtomic(a.charged + b.charged),
    quote: fromAtomic(a.quote + b.quote),
    search: fromAtomic(a.search + b.search),
    promptTokens: a.promptTokens + b.promptTokens,
    completionTokens: a.completionTokens + b.completionTokens,
    searchCalls: a.searchCalls + b.searchCalls,
    complete: a.complete && b.complete,
  }
}

/** `indexed` conditions use the index in order; `others` are checked row by row. The values of `indexed` come first. */
type Conditions = {
  readonly indexed: readonly string[]
  readonly others: readonly string[]
  readonly values: unknown[]
}

// A row's id contains its arrival time by a node's clock; `created_at` is the database's, after the body was read and an earlier
// attempt was awaited. So the id bounds are wider by these, and only narrow the rows that are read.
const idBehindMsMax = 60 * 60_000
const idAheadMsMax = 5 * 60_000

function conditionsOf(account: AccountRef, filter: RequestFilter, below: RequestId | undefined): Conditions {
  const values: unknown[] = []
  const value = (given: unknown) => `$${values.push(given)}`
  // Without the partition: otherwise the planner would prefer the primary key, ordered by id, and read the rows of all accounts.
  const indexed = [`r.account_id = ${value(account.accountId)}`]
  const others: string[] = []
  const { statuses, errorCodes, models, keyIds, hasSearch, stream, chargedMin, from, to, found } = filter
  const [onlyKey] = keyIds ?? []
  if (below !== undefined) indexed.push(`r.id < ${value(below)}`)
  if (found !== undefined && 'id' in found) indexed.push(`r.id = ${value(found.id)}`)
  if (found !== undefined && 'txHash' in found) {
    indexed.push(`r.entry in (select generate_series(p.first_entry, p.last_entry) from payments p
                   where p.tx_hash = ${value(found.txHash)} and p.account_id = $1)`)
  }
  if (from !== undefined) indexed.push(`r.id >= ${value(earliestRequestId(from.getTime() - idBehindMsMax))}`)
  if (to !== undefined) indexed.push(`r.id < ${value(earliestRequestId(to.getTime() + idAheadMsMax))}`)
  if (keyIds?.length === 1) indexed.push(`r.key_id = ${value(onlyKey)}`)
  if (neverSucceeded(filter)) indexed.push("r.status <> 'succeeded'")
  if (hasSearch === true) indexed.push('r.search_calls > 0')

  if (from !== undefined) others.push(`r.created_at >= ${value(from)}`)
  if (to !== undefined) others.push(`r.created_at < ${value(to)}`)
  if (keyIds !== undefined && keyIds.length !== 1) others.push(`r.key_id = any (${value(keyIds)})`)
  if (statuses !== undefined) others.push(`r.status = any (${value(statuses)})`)
  if (errorCodes !== undefined) others.push(`r.error_code = any (${value(errorCodes)})`)
  if (models !== undefined) others.push(`r.model = any (${value(models)})`)
  if (hasSearch === false) others.push('r.search_calls = 0')
  if (stream !== undefined) others.push(`r.stream = ${value(stream)}`)
  if (chargedMin !== undefined) others.push(`r.charged >= ${value(chargedMin)}`)
  return { indexed, others, values }
}

/** Whether the index of unsuccessful rows contains every match. */
function neverSucceeded({ statuses, errorCodes }: RequestFilter): boolean {
  if (statuses !== undefined) return !statuses.includes('held') && !statuses.includes('succeeded')
  return errorCodes !== undefined
}

function all(conditions: readonly string[]): string {
  return conditions.length === 0 ? 'true' : conditions.join(' and ')
}

const hourMs = 60 * 60_000

function thisHour(instant: Date): Date {
  return new Date(Math.floor(instant.getTime() / hourMs) * hourMs)
}

function nextHour(instant: Date): Date {
  return new Date(Math.ceil(instant.getTime() / hourMs) * hourMs)
}
