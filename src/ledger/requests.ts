import type { Database } from '../db/database.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'
import type { RequestUsage, ToolCallStatus } from './hold-calls.ts'
import { partitionOf, type RequestId } from './request-id.ts'
import type { SettlementState } from './settlements.ts'

/** The ledger row of one request, with the key that paid and the prices it was quoted at. */
export type LedgerRequest = {
  readonly id: RequestId
  readonly status: 'held' | 'succeeded' | 'failed' | 'cancelled' | 'refused'
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
  readonly nonce: bigint | undefined
  readonly voided: boolean
  readonly charged: Usdc
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
  /** What became of its payment; undefined until it has ended. */
  readonly settlement: RequestSettlement | undefined
}

/** A call of one of our tools, in the order in which they were run. */
export type RequestToolCall = {
  readonly number: number
  readonly kind: 'search' | 'fetch'
  readonly status: ToolCallStatus
  readonly results: number
}

export type RequestSettlement = {
  readonly state: SettlementState
  readonly nonce: bigint | undefined
  /** What was authorized; 0 when nothing had to be. */
  readonly value: Usdc
  readonly authorizedAt: Date | undefined
  readonly reason: string | undefined
  readonly batch: bigint | undefined
  /** Among the payments of its batch, counted from 1; undefined where the gateway did not say. */
  readonly place: { readonly position: number; readonly size: number } | undefined
  readonly txHash: Buffer | undefined
  readonly changedAt: Date
  readonly receipt: { readonly number: bigint; readonly hash: Buffer; readonly batched: boolean } | undefined
}

export type RequestPrice = {
  readonly version: string
  readonly inputPerMillion: bigint
  readonly outputPerMillion: bigint
  readonly searchPerCall: bigint
}

/** The account's own request; another account's is as absent as one that never was. */
export async function findRequest(
  database: Database,
  partition: number,
  accountId: string,
  id: RequestId,
): Promise<LedgerRequest | undefined> {
  const [row] = await database.queryPrepared<RequestRow>(
    'find_request',
    `select ${requestColumns} from requests r ${requestJoins}
      where r.partition = $1 and r.id = $2 and r.account_id = $3`,
    [partition, id, accountId],
  )
  return row === undefined ? undefined : readRequest(row)
}

/** Any account's request: for the operator alone. */
export async function findAnyRequest(database: Database, id: RequestId): Promise<LedgerRequest | undefined> {
  const [row] = await database.query<RequestRow>(
    `select ${requestColumns} from requests r ${requestJoins} where r.partition = $1 and r.id = $2`,
    [partitionOf(id), id],
  )
  return row === undefined ? undefined : readRequest(row)
}

const forgottenAtOnce = 5_000

/** Deletes refusals that are older than so many days. They moved no money; the hourly sums keep counting them. */
export async function forgetRefusals(database: Database, days: number): Promise<void> {
  let deleted: number
  do {
    const rows = await database.query(
      `delete from requests r using (
         select x.partition, x.id from requests x
          where x.status = 'refused' and x.created_at < clock_timestamp() - $1 * interval '1 day'
          order by x.created_at limit ${forgottenAtOnce}) old
        where r.partition = old.partition and r.id = old.id and r.status = 'refused' returning 1`,
      [days],
    )
    deleted = rows.length
  } while (deleted === forgottenAtOnce)
}

/** What is selected for a row of `requests r`, with the joins that it needs. */
export const requestColumns = `r.*, k.name as key_name, k.hint as key_hint,
  p.input_per_million, p.output_per_million, p.search_per_call,
  s.state as settlement_state, s.nonce as settlement_nonce, s.value as settlement_value, s.authorized_at, s.reason, s.batch,
  s.batch_position, s.batch_size, s.tx_hash, s.changed_at, s.receipt_number, s.receipt_hash, s.receipt_root is not null as receipt_batched,
  (select json_agg(json_build_object('number', t.number, 'kind', t.kind, 'status', t.status, 'results', t.results)
                   order by t.number)
     from tool_calls t where t.partition = r.partition and t.request_id = r.id) as tool_calls`
export const requestJoins = `
  join api_keys k on k.partition = r.partition and k.id = r.key_id
  left join prices p on p.version = r.price_version and p.model = r.model
  left join settlements s on s.partition = r.partition and s.id = r.id and s.revision = 0`

export type RequestRow = {
  readonly id: RequestId
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
  readonly nonce: bigint | null
  readonly voided: boolean
  readonly charged: bigint
  readonly search_cost: bigint
  readonly search_calls: number
  readonly fetch_calls: number
  readonly tool_calls: readonly RequestToolCall[] | null
  readonly prompt_tokens: number | null
  readonly completion_tokens: number | null
  readonly reasoning_tokens: number | null
  readonly cached_tokens: number | null
  readonly usage_source: 'upstream' | 'counted' | null
  readonly price_version: string | null
  readonly input_per_million: bigint | null
  readonly output_per_million: bigint | null
  readonly search_per_call: bigint | null
  readonly finish_reason: string | null
  readonly error_code: string | null
  readonly first_token_ms: number | null
  readonly total_ms: number | null
  readonly settlement_state: SettlementState | null
  readonly settlement_nonce: bigint | null
  readonly settlement_value: bigint | null
  readonly authorized_at: Date | null
  readonly reason: string | null
  readonly batch: bigint | null
  readonly batch_position: number | null
  readonly batch_size: number | null
  readonly tx_hash: Buffer | null
  readonly changed_at: Date | null
  readonly receipt_number: bigint | null
  readonly receipt_hash: Buffer | null
  readonly receipt_batched: boolean
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
    nonce: row.nonce ?? undefined,
    voided: row.voided,
    charged: fromAtomic(row.charged),
    searchCost: fromAtomic(row.search_cost),
    searchCalls: row.search_calls,
    fetchCalls: row.fetch_calls,
    toolCalls: row.tool_calls ?? [],
    usage: readUsage(row),
    price: readPrice(row),
    finishReason: row.finish_reason ?? undefined,
    errorCode: row.error_code ?? undefined,
    firstTokenMs: row.first_token_ms ?? undefined,
    totalMs: row.total_ms ?? undefined,
    settlement: readSettlement(row),
  }
}

function readSettlement(row: RequestRow): RequestSettlement | undefined {
  if (row.settlement_state === null) return undefined
  return {
    state: row.settlement_state,
    nonce: row.settlement_nonce ?? undefined,
    value: fromAtomic(row.settlement_value!),
    authorizedAt: row.authorized_at ?? undefined,
    reason: row.reason ?? undefined,
    batch: row.batch ?? undefined,
    place:
      row.batch_position === null || row.batch_size === null
        ? undefined
        : { position: row.batch_position, size: row.batch_size },
    txHash: row.tx_hash ?? undefined,
    changedAt: row.changed_at!,
    receipt:
      row.receipt_number === null || row.receipt_hash === null
        ? undefined
        : { number: row.receipt_number, hash: row.receipt_hash, batched: row.receipt_batched },
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
