import { plainArray } from '../db/array-literal.ts'
import type { Connection, Database } from '../db/database.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import type { RequestId } from './request-id.ts'

/** Renews or acquires this node's lease. False when it had expired: other nodes may have ended its requests. */
export async function renewLease(database: Database, node: string, leaseMs: number): Promise<boolean> {
  const [row] = await database.queryPrepared<{ kept: boolean }>('renew_lease', 'select renew_lease($1, $2) as kept', [
    node,
    leaseMs,
  ])
  return row!.kept
}

/**
 * When the node's lease ends, by the database's clock; undefined when it has none, or when it must not hold anything because of an
 * emergency freeze (`freezeLedger`).
 */
export async function readLeaseEnd(connection: Connection, node: string): Promise<Date | undefined> {
  const row = await rowOf<{ readonly leaseUntil: Date }>(
    connection.queryPrepared(
      'read_lease_end',
      'select lease_until from nodes where id = $1 and not exists (select from emergency_freeze)',
      [node],
    ),
  )
  return row?.leaseUntil
}

export async function isAlive(connection: Connection, node: string): Promise<boolean> {
  const rows = await connection.query('select from nodes where id = $1 and lease_until >= clock_timestamp()', [node])
  return rows.length > 0
}

/** Ends a lease now: for a node that stops, or one whose process is known to be dead. */
export async function endLease(database: Database, node: string): Promise<void> {
  await database.query("update nodes set lease_until = '-infinity' where id = $1", [node])
}

/** A request that is open and that no node serves, with its last checkpoint. */
export type OrphanedHold = {
  readonly requestId: RequestId
  readonly partition: number
  readonly accountId: string
  readonly keyId: string
  readonly quote: bigint
  readonly extended: bigint
  readonly priceVersion: string
  /** Undefined when the ledger does not know the prices of the hold's version: only a void is correct then. */
  readonly prices: { readonly inputPerMillion: bigint; readonly outputPerMillion: bigint } | undefined
  readonly checkpoint: { readonly promptTokens: number; readonly completionTokens: number } | undefined
  /** The cost of the completed searches. */
  readonly searchCost: bigint
  readonly searchCalls: number
  readonly fetchCalls: number
  readonly ageMs: number
}

/** Open requests of dead nodes, oldest first: of nodes that released their lease or, with `withExpired`, whose lease has expired. */
export async function findOrphanedHolds(
  database: Database,
  rowsMax: number,
  withExpired: boolean,
): Promise<readonly OrphanedHold[]> {
  const rows = await rowsOf<OrphanRow>(
    database.query(
      `${selectHolds} left join nodes n on n.id = h.node
      where n.id is null or n.lease_until = '-infinity' or ($2 and n.lease_until < clock_timestamp())
      order by h.id limit $1`,
      [rowsMax, withExpired],
    ),
  )
  return rows.map(readOrphan)
}

/** Open requests of this node except those that it is serving, oldest first. */
export async function findUnservedHolds(
  database: Database,
  node: string,
  serving: readonly RequestId[],
  rowsMax: number,
): Promise<readonly OrphanedHold[]> {
  const rows = await rowsOf<OrphanRow>(
    database.query(`${selectHolds} where h.node = $1 and h.id <> all ($2::uuid[]) order by h.id limit $3`, [
      node,
      plainArray(serving),
      rowsMax,
    ]),
  )
  return rows.map(readOrphan)
}

const selectHolds = `
     select h.id as request_id, h.partition, h.account_id, h.key_id, h.quote, h.extended, h.price_version, p.input_per_million,
            p.output_per_million, h.prompt_tokens, h.completion_tokens, t.search_cost, t.search_calls, t.fetch_calls,
            -- The database may have been stopped for months, or the clock may have jumped: an integer of milliseconds overflows
            -- after 25 days.
            least(greatest(extract(epoch from clock_timestamp() - h.created_at) * 1000, 0), 2147483647)::int as age_ms
       from holds h
       -- A hold without known prices must end, too: it is void.
       left join prices p on p.version = h.price_version and p.model = h.model
       cross join lateral (select coalesce(sum((x.value->>'cost')::bigint), 0)::bigint as search_cost,
                                  (count(*) filter (where x.value->>'kind' = 'search'))::int as search_calls,
                                  (count(*) filter (where x.value->>'kind' = 'fetch'))::int as fetch_calls
                             from jsonb_each(h.tool_calls) x where x.value->>'status' = 'completed') t`

const deadNodesMax = 100

/** Deletes dead nodes without holds. */
export async function deleteDeadNodes(database: Database): Promise<void> {
  // In steps: on a cluster the holds are not where the nodes are.
  const dead = await database.query<{ id: string }>(
    `select id from nodes where lease_until < now() - interval '1 hour' limit ${deadNodesMax}`,
  )
  if (dead.length === 0) return
  const ids = dead.map(({ id }) => id)
  const holding = await database.query<{ node: string }>(
    'select distinct node from holds where node = any ($1::uuid[])',
    [ids],
  )
  const empty = ids.filter((id) => !holding.some(({ node }) => node === id))
  // A node of that id may have come back in the meantime.
  await database.query(`delete from nodes where id = any ($1::uuid[]) and lease_until < now() - interval '1 hour'`, [
    empty,
  ])
}

type OrphanRow = Omit<OrphanedHold, 'prices' | 'checkpoint'> & {
  readonly inputPerMillion: bigint | undefined
  readonly outputPerMillion: bigint | undefined
  readonly promptTokens: number | undefined
  readonly completionTokens: number | undefined
}

function readOrphan(row: OrphanRow): OrphanedHold {
  const { inputPerMillion, outputPerMillion, promptTokens, completionTokens, ...hold } = row
  return {
    ...hold,
    prices: inputPerMillion === undefined ? undefined : { inputPerMillion, outputPerMillion: outputPerMillion! },
    checkpoint: promptTokens === undefined ? undefined : { promptTokens, completionTokens: completionTokens! },
  }
}
