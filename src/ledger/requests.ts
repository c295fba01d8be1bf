import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { chunkRowsMax, deleteInChunks } from '../db/delete-in-chunks.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'
import { listPartitions } from './accounts.ts'
import type { RequestUsage, ToolCallStatus } from './hold-calls.ts'
import { partitionOf, type RequestId } from './request-id.ts'
import type { PaymentState, RequestStatus, UsageSource } from './states.ts'

/** The ledger row of one request, with the paying key and the quoted prices. */
export type LedgerRequest = {
  readonly id: RequestId
  readonly status: RequestStatus
  readonly createdAt: Date
  readonly endedAt: Date | undefined
  readonly model: string | undefined
  readonly stream: boolean
  readonly maxTokens: number | undefined
  readonly key: { readonly id: string; readonly name: string; readonly hint: string }
  readonly quote: Usdc
  readonly extended: Usdc
  readonly fromCredit: Usdc
  readonly authorized: Usdc
  readonly voided: boolean
  readonly charged: Usdc
  /** The part of the charge that was refunded later, by an operator or because a retry replaced the request. */
  readonly givenBack: Usdc
  readonly searchCost: Usdc
  readonly searchCalls: number
  readonly fetchCalls: number
  readonly toolCalls: readonly RequestToolCall[]
  readonly usage: RequestUsage | undefined
  readonly price: RequestPrice | undefined
  readonly finishReason: string | undefined
  readonly errorCode: string | undefined
  readonly firstTokenMs: number | undefined
  readonly totalMs: number | undefined
  /** The entry number within its account; undefined until the request has ended, and for a refused one. */
  readonly entry: bigint | undefined
  /** The payment that covers it; undefined while there is none. */
  readonly payment: RequestPayment | undefined
  /** Wallet accounts only: paid in advance over x402. The payment that covers it signs its receipt and transfers nothing. */
  readonly isPrepaid: boolean
}

/** A call of one of our tools. Calls are in the order in which they ran. */
export type RequestToolCall = {
  readonly number: number
  readonly kind: 'search' | 'fetch'
  readonly status: ToolCallStatus
  readonly results: number
}

export type RequestPayment = {
  readonly number: bigint
  readonly epoch: number
  readonly accountId: string
  readonly value: bigint
  /** How many entries the payment covers. */
  readonly entries: number
  readonly state: PaymentState
  readonly reason: string | undefined
  readonly batch: bigint | undefined
  /** The position among the payments of its batch, from 1; undefined when the gateway did not report it. */
  readonly place: { readonly position: number; readonly size: number } | undefined
  readonly txHash: Buffer | undefined
  readonly changedAt: Date
}

export type RequestPrice = {
  readonly version: string
  readonly inputPerMillion: bigint
  readonly outputPerMillion: bigint
  readonly searchPerCall: bigint
}

/** The account's own request. Another account's request looks like one that does not exist. */
export async function findRequest(
  database: Database,
  partition: number,
  accountId: string,
  id: RequestId,
): Promise<LedgerRequest | undefined> {
  const [row] = await database.queryPrepared<RequestRow>(
    'find_request',
    `select ${requestColumns} from request_log r ${requestJoins('$1')}
      where r.partition = $1 and r.id = $2 and r.account_id = $3`,
    [partition, id, accountId],
  )
  return row === undefined ? undefined : readRequest(row)
}

/** The account's requests with these ids, oldest first. Unknown ids are left out. */
export async function findRequests(
  database: Database,
  { partition, accountId }: AccountRef,
  ids: readonly RequestId[],
): Promise<readonly LedgerRequest[]> {
  const rows = await database.query<RequestRow>(
    `select ${requestColumns} from request_log r ${requestJoins('$1')}
      where r.partition = $1 and r.id = any ($2::uuid[]) and r.account_id = $3 order by r.id`,
    [partition, ids, accountId],
  )
  return rows.map(readRequest)
}

/** Any account's request. For the operator only. */
export async function findAnyRequest(database: Database, id: RequestId): Promise<LedgerRequest | undefined> {
  const [row] = await database.query<RequestRow>(
    `select ${requestColumns} from request_log r ${requestJoins('$1')} where r.partition = $1 and r.id = $2`,
    [partitionOf(id), id],
  )
  return row === undefined ? undefined : readRequest(row)
}

const monthsAhead = 4

/** Requests are partitioned by month: creates a month's partition before its first request. */
export async function createRequestMonths(database: Database): Promise<void> {
  await database.query('select create_request_months(clock_timestamp(), $1)', [monthsAhead])
}

/** Deletes refusals older than this many days. They moved no money; the hourly sums still count them. */
export async function deleteOldRefusals(database: Database, days: number): Promise<void> {
  for (const partition of await listPartitions(database))
    await deleteInChunks(() =>
      database.query(
        `delete from requests r using (
           select x.id from requests x
            where x.partition = $1 and x.status = 'refused' and x.created_at < now() - $2 * interval '1 day'
            order by x.created_at limit ${chunkRowsMax}) old
          where r.partition = $1 and r.id = old.id and r.status = 'refused' returning 1`,
        [partition, days],
      ),
    )
}

/** The columns of a `request_log r` row, with the joins they need. */
export const requestColumns = `r.*, a.wallet is not null as is_prepaid, k.name as key_name, k.hint as key_hint,
  p.input_per_million, p.output_per_million, p.search_per_call, g.given_back,
  y.number as payment_number, y.epoch as payment_epoch, y.value as payment_value,
  (y.last_entry - y.first_entry + 1)::int as payment_entries, y.state as payment_state, y.reason, y.batch, y.batch_position,
  y.batch_size, y.tx_hash, y.changed_at`
/** `partition` is the parameter that has the partition of the rows, such as `$1`. */
export const requestJoins = (partition: string) => `
  join accounts a on a.partition = ${partition} and a.id = r.account_id
  join api_keys k on k.partition = ${partition} and k.id = r.key_id
  left join prices p on p.version = r.price_version and p.model = r.model
  left join lateral (select coalesce(sum(x.amount), 0)::bigint as given_back from adjustments x
                      where x.partition = ${partition} and x.request_id = r.id) g on true
  left join lateral (select x.* from payments x
                      where x.partition = ${partition} and x.account_id = r.account_id and x.state <> 'failed' and x.first_entry <= r.entry
                      order by x.first_entry desc limit 1) y on y.last_entry >= r.entry`

export type RequestRow = {
  readonly id: RequestId
  readonly account_id: string
  readonly status: LedgerRequest['status']
  readonly created_at: Date
  readonly ended_at: Date | null
  readonly model: string | null
  readonly stream: boolean
  readonly max_tokens: number | null
  readonly key_id: string
  readonly key_name: string
  readonly key_hint: string
  readonly quote: bigint
  readonly extended: bigint
  readonly from_credit: bigint
  readonly authorized: bigint
  readonly voided: boolean
  readonly charged: bigint
  readonly search_cost: bigint
  readonly search_calls: number
  readonly fetch_calls: number
  readonly given_back: bigint
  readonly entry: bigint | null
  readonly tool_calls: Readonly<Record<string, Omit<RequestToolCall, 'number'>>> | null
  readonly prompt_tokens: number | null
  readonly completion_tokens: number | null
  readonly reasoning_tokens: number | null
  readonly cached_tokens: number | null
  readonly usage_source: UsageSource | null
  readonly price_version: string | null
  readonly input_per_million: bigint | null
  readonly output_per_million: bigint | null
  readonly search_per_call: bigint | null
  readonly finish_reason: string | null
  readonly error_code: string | null
  readonly first_token_ms: number | null
  readonly total_ms: number | null
  readonly payment_number: bigint | null
  readonly payment_epoch: bigint | null
  readonly payment_value: bigint | null
  readonly payment_entries: number | null
  readonly payment_state: PaymentState | null
  readonly reason: string | null
  readonly batch: bigint | null
  readonly batch_position: number | null
  readonly batch_size: number | null
  readonly tx_hash: Buffer | null
  readonly changed_at: Date | null
  readonly is_prepaid: boolean
}

export function readRequest(row: RequestRow): LedgerRequest {
  return {
    id: row.id,
    status: row.status,
    createdAt: row.created_at,
    endedAt: row.ended_at ?? undefined,
    model: row.model ?? undefined,
    stream: row.stream,
    maxTokens: row.max_tokens ?? undefined,
    key: { id: row.key_id, name: row.key_name, hint: row.key_hint },
    quote: fromAtomic(row.quote),
    extended: fromAtomic(row.extended),
    fromCredit: fromAtomic(row.from_credit),
    authorized: fromAtomic(row.authorized),
    voided: row.voided,
    charged: fromAtomic(row.charged),
    givenBack: fromAtomic(row.given_back),
    searchCost: fromAtomic(row.search_cost),
    searchCalls: row.search_calls,
    fetchCalls: row.fetch_calls,
    toolCalls: Object.entries(row.tool_calls ?? {})
      .map(([number, { kind, status, results }]) => ({ number: Number(number), kind, status, results }))
      .sort((one, other) => one.number - other.number),
    usage: readUsage(row),
    price: readPrice(row),
    finishReason: row.finish_reason ?? undefined,
    errorCode: row.error_code ?? undefined,
    firstTokenMs: row.first_token_ms ?? undefined,
    totalMs: row.total_ms ?? undefined,
    entry: row.entry ?? undefined,
    payment: readPayment(row),
    isPrepaid: row.is_prepaid,
  }
}

function readPayment(row: RequestRow): RequestPayment | undefined {
  if (row.payment_number === null) return undefined
  return {
    number: row.payment_number,
    epoch: Number(row.payment_epoch),
    accountId: row.account_id,
    value: row.payment_value!,
    entries: row.payment_entries!,
    state: row.payment_state!,
    reason: row.reason ?? undefined,
    batch: row.batch ?? undefined,
    place:
      row.batch_position === null || row.batch_size === null
        ? undefined
        : { position: row.batch_position, size: row.batch_size },
    txHash: row.tx_hash ?? undefined,
    changedAt: row.changed_at!,
  }
}

function readUsage(row: RequestRow): RequestUsage | undefined {
  if (row.usage_source === null) return undefined
  return {
    promptTokens: row.prompt_tokens ?? 0,
    completionTokens: row.completion_tokens ?? 0,
    reasoningTokens: row.reasoning_tokens ?? 0,
    cachedTokens: row.cached_tokens ?? 0,
    source: row.usage_source,
  }
}

function readPrice(row: RequestRow): RequestPrice | undefined {
  if (row.price_version === null || row.input_per_million === null) return undefined
  return {
    version: row.price_version,
    inputPerMillion: row.input_per_million,
    outputPerMillion: row.output_per_million!,
    searchPerCall: row.search_per_call!,
  }
}
