import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { chunkRowsMax, deleteInChunks } from '../db/delete-in-chunks.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import type { Usdc } from '../money/usdc.ts'
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
  const row = await rowOf<RequestRow>(
    database.queryPrepared(
      'find_request',
      `select ${requestColumns} from request_log r ${requestJoins('$1')}
      where r.partition = $1 and r.id = $2 and r.account_id = $3`,
      [partition, id, accountId],
    ),
  )
  return row === undefined ? undefined : readRequest(row)
}

/** The account's requests with these ids, oldest first. Unknown ids are left out. */
export async function findRequests(
  database: Database,
  { partition, accountId }: AccountRef,
  ids: readonly RequestId[],
): Promise<readonly LedgerRequest[]> {
  const rows = await rowsOf<RequestRow>(
    database.query(
      `select ${requestColumns} from request_log r ${requestJoins('$1')}
      where r.partition = $1 and r.id = any ($2::uuid[]) and r.account_id = $3 order by r.id`,
      [partition, ids, accountId],
    ),
  )
  return rows.map(readRequest)
}

/** The account of any request. For the operator only. */
export async function findAccountOfRequest(database: Database, id: RequestId): Promise<string | undefined> {
  const row = await rowOf<{ readonly accountId: string }>(
    database.query('select account_id from request_log where partition = $1 and id = $2', [partitionOf(id), id]),
  )
  return row?.accountId
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
export const requestColumns = `r.id, r.status, r.created_at, r.ended_at, r.model, r.stream, r.max_tokens, r.quote, r.extended, r.from_credit,
  r.authorized, r.voided, r.charged, r.search_cost, r.search_calls, r.fetch_calls, r.tool_calls, r.prompt_tokens, r.completion_tokens,
  r.reasoning_tokens, r.cached_tokens, r.usage_source, r.finish_reason, r.error_code, r.first_token_ms, r.total_ms, r.entry, r.price_version,
  r.account_id, a.wallet is not null as is_prepaid, k.id as key_id, k.name as key_name, k.hint as key_hint,
  p.input_per_million, p.output_per_million, p.search_per_call, g.given_back,
  y.number as payment_number, y.epoch::int as payment_epoch, y.value as payment_value,
  (y.last_entry - y.first_entry + 1)::int as payment_entries, y.state as payment_state, y.reason as payment_reason, y.batch as payment_batch,
  y.batch_position, y.batch_size, y.tx_hash, y.changed_at as payment_changed_at`
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

export type RequestRow = Omit<LedgerRequest, 'key' | 'toolCalls' | 'usage' | 'price' | 'payment'> & {
  readonly accountId: string
  readonly keyId: string
  readonly keyName: string
  readonly keyHint: string
  readonly toolCalls: Readonly<Record<string, Omit<RequestToolCall, 'number'>>> | undefined
  readonly promptTokens: number | undefined
  readonly completionTokens: number | undefined
  readonly reasoningTokens: number | undefined
  readonly cachedTokens: number | undefined
  readonly usageSource: UsageSource | undefined
  readonly priceVersion: string | undefined
  readonly inputPerMillion: bigint | undefined
  readonly outputPerMillion: bigint | undefined
  readonly searchPerCall: bigint | undefined
  readonly paymentNumber: bigint | undefined
  readonly paymentEpoch: number | undefined
  readonly paymentValue: bigint | undefined
  readonly paymentEntries: number | undefined
  readonly paymentState: PaymentState | undefined
  readonly paymentReason: string | undefined
  readonly paymentBatch: bigint | undefined
  readonly batchPosition: number | undefined
  readonly batchSize: number | undefined
  readonly txHash: Buffer | undefined
  readonly paymentChangedAt: Date | undefined
}

export function readRequest(row: RequestRow): LedgerRequest {
  const { accountId, keyId, keyName, keyHint, toolCalls = {}, ...unusage } = row
  const {
    promptTokens = 0,
    completionTokens = 0,
    reasoningTokens = 0,
    cachedTokens = 0,
    usageSource,
    ...unpriced
  } = unusage
  const { priceVersion, inputPerMillion, outputPerMillion, searchPerCall, ...unpaid } = unpriced
  const { paymentNumber, paymentEpoch, paymentValue, paymentEntries, paymentState, ...rest } = unpaid
  const { paymentReason, paymentBatch, batchPosition, batchSize, txHash, paymentChangedAt, ...request } = rest
  return {
    ...request,
    key: { id: keyId, name: keyName, hint: keyHint },
    toolCalls: Object.entries(toolCalls)
      .map(([number, { kind, status, results }]) => ({ number: Number(number), kind, status, results }))
      .sort((one, other) => one.number - other.number),
    usage:
      usageSource === undefined
        ? undefined
        : { promptTokens, completionTokens, reasoningTokens, cachedTokens, source: usageSource },
    price:
      priceVersion === undefined || inputPerMillion === undefined
        ? undefined
        : {
            version: priceVersion,
            inputPerMillion,
            outputPerMillion: outputPerMillion!,
            searchPerCall: searchPerCall!,
          },
    payment:
      paymentNumber === undefined
        ? undefined
        : {
            number: paymentNumber,
            epoch: paymentEpoch!,
            accountId,
            value: paymentValue!,
            entries: paymentEntries!,
            state: paymentState!,
            reason: paymentReason,
            batch: paymentBatch,
            place:
              batchPosition === undefined || batchSize === undefined
                ? undefined
                : { position: batchPosition, size: batchSize },
            txHash,
            changedAt: paymentChangedAt!,
          },
  }
}
