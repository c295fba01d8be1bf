import type { Database } from '../db/database.ts'
import type { RequestId } from './request-id.ts'

/** Renews this node's lease, or takes it. False when it had run out: its requests may have been ended by others. */
export async function renewLease(database: Database, node: string, leaseMs: number): Promise<boolean> {
  const [row] = await database.queryPrepared<{ kept: boolean }>('renew_lease', 'select renew_lease($1, $2) as kept', [
    node,
    leaseMs,
  ])
  return row!.kept
}

/** Lets a lease end now: for a node that stops, or one whose process is known to be dead. */
export async function endLease(database: Database, node: string): Promise<void> {
  await database.query("update nodes set lease_until = '-infinity' where id = $1", [node])
}

/** A request whose node is dead, with the last evidence of what it had come to. */
export type OrphanedHold = {
  readonly requestId: RequestId
  readonly partition: number
  readonly accountId: string
  readonly keyId: string
  readonly quote: bigint
  readonly extended: bigint
  readonly inputPerMillion: bigint
  readonly outputPerMillion: bigint
  readonly checkpoint: { readonly promptTokens: number; readonly completionTokens: number } | undefined
  /** What the searches that ran have cost. */
  readonly searchCost: bigint
  readonly searchCalls: number
  readonly fetchCalls: number
  readonly ageMs: number
}

/** Open requests of nodes whose lease is dead, oldest first. */
export async function findOrphanedHolds(database: Database, rowsMax: number): Promise<readonly OrphanedHold[]> {
  const rows = await database.query<OrphanRow>(
    `select r.id, r.partition, r.account_id, r.key_id, r.quote, r.extended, p.input_per_million, p.output_per_million,
            c.prompt_tokens, c.completion_tokens, t.search_cost, t.search_calls, t.fetch_calls,
            -- The books may have lain for months, or the clock have stepped: an integer is full after 25 days.
            least(greatest(extract(epoch from clock_timestamp() - r.created_at) * 1000, 0), 2147483647)::int as age_ms
       from requests r
       join prices p on p.version = r.price_version and p.model = r.model
       left join nodes n on n.id = r.node
       left join checkpoints c on c.partition = r.partition and c.id = r.id
       cross join lateral (select coalesce(sum(x.cost), 0)::bigint as search_cost,
                                  (count(*) filter (where x.kind = 'search'))::int as search_calls,
                                  (count(*) filter (where x.kind = 'fetch'))::int as fetch_calls
                             from tool_calls x
                            where x.partition = r.partition and x.request_id = r.id and x.status = 'completed') t
      where r.status = 'held' and (n.id is null or n.lease_until < clock_timestamp())
      order by r.id limit $1`,
    [rowsMax],
  )
  return rows.map(readOrphan)
}

/** Forgets nodes that are dead and hold nothing, and checkpoints of requests that have ended. */
export async function forgetDeadNodes(database: Database): Promise<void> {
  await database.query(
    `delete from nodes n where n.lease_until < clock_timestamp() - interval '1 hour'
        and not exists (select from requests r where r.node = n.id and r.status = 'held')`,
  )
  await database.query(
    `delete from checkpoints c using requests r where r.partition = c.partition and r.id = c.id and r.status <> 'held'`,
  )
}

type OrphanRow = {
  readonly id: RequestId
  readonly partition: number
  readonly account_id: string
  readonly key_id: string
  readonly quote: bigint
  readonly extended: bigint
  readonly input_per_million: bigint
  readonly output_per_million: bigint
  readonly prompt_tokens: number | null
  readonly completion_tokens: number | null
  readonly search_cost: bigint
  readonly search_calls: number
  readonly fetch_calls: number
  readonly age_ms: number
}

function readOrphan(row: OrphanRow): OrphanedHold {
  return {
    requestId: row.id,
    partition: row.partition,
    accountId: row.account_id,
    keyId: row.key_id,
    quote: row.quote,
    extended: row.extended,
    inputPerMillion: row.input_per_million,
    outputPerMillion: row.output_per_million,
    checkpoint:
      row.prompt_tokens === null
        ? undefined
        : { promptTokens: row.prompt_tokens, completionTokens: row.completion_tokens! },
    searchCost: row.search_cost,
    searchCalls: row.search_calls,
    fetchCalls: row.fetch_calls,
    ageMs: row.age_ms,
  }
}
