import type { Database } from '../db/database.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'
import { earliestRequestIdSql, partitionOf, type RequestId } from './request-id.ts'

/** A row of the log, short enough for one line. */
export type LoggedRequest = {
  readonly id: RequestId
  readonly status: string
  readonly createdAt: Date
  readonly accountId: string
  readonly keyHint: string | null
  readonly model: string | null
  readonly stream: boolean
  readonly errorCode: string | null
  readonly promptTokens: number | null
  readonly completionTokens: number | null
  readonly charged: Usdc
  readonly totalMs: number | null
}

export type RequestCursor = {
  readonly rows: readonly LoggedRequest[]
  /** Where the next read starts. It overlaps this one, because ids are created before their rows are written. */
  readonly next: RequestId
}

const rowsMax = 1_000
const overlapSeconds = 30

type TailQuestion = { readonly partitions: number } & ({ readonly last: number } | { readonly since: RequestId })

/** The latest requests of all accounts, or those since the last reading, oldest first. */
export async function readRequestsSince(database: Database, question: TailQuestion): Promise<RequestCursor> {
  const { partitions } = question
  const last = 'last' in question ? question.last : rowsMax
  const since = 'since' in question ? question.since : null
  const [bound] = await database.query<{ next: RequestId }>(
    `select ${earliestRequestIdSql(`clock_timestamp() - interval '${overlapSeconds} seconds'`)}::text as next`,
  )
  const rows = await database.query<TailRow>(
    `select ${columns}
       from generate_series(0, $1::int - 1) as p (partition)
      cross join lateral (select * from request_log x
                           where x.partition = p.partition and ($2::uuid is null or x.id >= $2)
                           order by x.id desc limit $3) r
       left join api_keys k on k.partition = r.partition and k.id = r.key_id
      order by r.id desc limit $3`,
    [partitions, since, last],
  )
  return { rows: rows.map(readRow).reverse(), next: bound!.next }
}

export async function readRequestsById(
  database: Database,
  ids: readonly RequestId[],
): Promise<readonly LoggedRequest[]> {
  const rows = await database.query<TailRow>(
    `select ${columns} from unnest($1::uuid[], $2::int[]) as i (id, partition)
       join request_log r on r.partition = i.partition and r.id = i.id
       left join api_keys k on k.partition = r.partition and k.id = r.key_id order by r.id`,
    [ids, ids.map(partitionOf)],
  )
  return rows.map(readRow)
}

const columns = `r.id, r.status, r.created_at, r.account_id, k.hint, r.model, r.stream, r.error_code, r.prompt_tokens,
  r.completion_tokens, r.charged, r.total_ms`

type TailRow = {
  readonly id: RequestId
  readonly status: string
  readonly created_at: Date
  readonly account_id: string
  readonly hint: string | null
  readonly model: string | null
  readonly stream: boolean
  readonly error_code: string | null
  readonly prompt_tokens: number | null
  readonly completion_tokens: number | null
  readonly charged: bigint
  readonly total_ms: number | null
}

function readRow(row: TailRow): LoggedRequest {
  return {
    id: row.id,
    status: row.status,
    createdAt: row.created_at,
    accountId: row.account_id,
    keyHint: row.hint,
    model: row.model,
    stream: row.stream,
    errorCode: row.error_code,
    promptTokens: row.prompt_tokens,
    completionTokens: row.completion_tokens,
    charged: fromAtomic(row.charged),
    totalMs: row.total_ms,
  }
}
