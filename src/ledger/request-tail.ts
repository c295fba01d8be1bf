import type { Database } from '../db/database.ts'
import { rowsOf } from '../db/rows.ts'
import type { Usdc } from '../money/usdc.ts'
import { earliestRequestIdSql, partitionOf, type RequestId } from './request-id.ts'

/** A row of the log, short enough for one line. */
export type LoggedRequest = {
  readonly id: RequestId
  readonly status: string
  readonly createdAt: Date
  readonly accountId: string
  readonly keyHint: string | undefined
  readonly model: string | undefined
  readonly stream: boolean
  readonly errorCode: string | undefined
  readonly promptTokens: number | undefined
  readonly completionTokens: number | undefined
  readonly charged: Usdc
  readonly totalMs: number | undefined
}

export type RequestCursor = {
  readonly rows: readonly LoggedRequest[]
  /** Where the next read starts. It overlaps this one, because ids are created before their rows are written. */
  readonly next: RequestId
}

const rowsMax = 1_000
const overlapSeconds = 30

export type TailFilter = {
  readonly partitions: number
  readonly accountId?: string | undefined
  readonly model?: string | undefined
  /** Undefined: every status. */
  readonly statuses?: readonly string[] | undefined
}

type TailQuestion = TailFilter & ({ readonly last: number } | { readonly since: RequestId })

/** The latest requests that fit, or those since the last reading, oldest first. */
export async function readRequestsSince(database: Database, question: TailQuestion): Promise<RequestCursor> {
  const { partitions, accountId = null, model = null, statuses = null } = question
  const last = 'last' in question ? question.last : rowsMax
  const since = 'since' in question ? question.since : null
  const [bound] = await database.query<{ next: RequestId }>(
    `select ${earliestRequestIdSql(`clock_timestamp() - interval '${overlapSeconds} seconds'`)}::text as next`,
  )
  const rows = await rowsOf<LoggedRequest>(
    database.query(
      `select ${columns}
       from generate_series(0, $1::int - 1) as p (partition)
      cross join lateral (select * from request_log x
                           where x.partition = p.partition and ($2::uuid is null or x.id >= $2)
                             and ($4::uuid is null or x.account_id = $4)
                             and ($5::text is null or x.model = $5)
                             and ($6::text[] is null or x.status = any($6))
                           order by x.id desc limit $3) r
       left join api_keys k on k.partition = r.partition and k.id = r.key_id
      order by r.id desc limit $3`,
      [partitions, since, last, accountId, model, statuses],
    ),
  )
  return { rows: rows.reverse(), next: bound!.next }
}

export async function readRequestsById(
  database: Database,
  ids: readonly RequestId[],
): Promise<readonly LoggedRequest[]> {
  return rowsOf<LoggedRequest>(
    database.query(
      `select ${columns} from unnest($1::uuid[], $2::int[]) as i (id, partition)
       join request_log r on r.partition = i.partition and r.id = i.id
       left join api_keys k on k.partition = r.partition and k.id = r.key_id order by r.id`,
      [ids, ids.map(partitionOf)],
    ),
  )
}

const columns = `r.id, r.status, r.created_at, r.account_id, k.hint as key_hint, r.model, r.stream, r.error_code, r.prompt_tokens,
  r.completion_tokens, r.charged, r.total_ms`
