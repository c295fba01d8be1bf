import { OperatorError } from '../errors.ts'
import type { Connection, Database } from './database.ts'

// On Citus the rows of one partition lie together on one worker, in one shard of each table. Every function of the ledger touches one
// partition and runs where it lies. The functions read three small tables besides, which each worker has a copy of. All other tables stay
// on the coordinator: a table with copies can be written only while every worker is up, and an outage of one worker must not stop the
// accounts on the others.

const copiedTables: readonly string[] = ['prices', 'ledger_state', 'sealed_months']
const distributedBy = 'partition'
/** The other distributed tables are colocated with it. */
const firstTable = 'accounts'
/** Runs on the coordinator, because it creates tables. */
const localFunctions: readonly string[] = ['create_request_months', 'renew_lease', 'refuse_earlier_calls']
const strategy = 'by_partition'
const statementMaxMs = 600_000

export type CitusReport = { readonly workers: number; readonly tables: number; readonly functions: number }

/**
 * Distributes tables and functions that are not distributed yet: all of them the first time, later those that an upgrade has added. Call
 * it after every migration. Returns undefined on a plain PostgreSQL, at the cost of one query.
 *
 * @throws when the cluster has no worker for the shards
 */
export async function distributeLedger(database: Database, partitions: number): Promise<CitusReport | undefined> {
  if (!(await hasCitus(database))) return undefined
  return database.transaction((connection) => distribute(connection, partitions), { statementMaxMs })
}

/** Names and ports of workers that compile queries, which makes the ledger slow. Empty on a plain PostgreSQL. */
export async function findWorkersWithJit(database: Database): Promise<readonly string[]> {
  if (!(await hasCitus(database))) return []
  const rows = await database.query<{ worker: string }>(
    `select nodename || ':' || nodeport as worker from run_command_on_workers('show jit') where success and result <> 'off'`,
  )
  return rows.map(({ worker }) => worker)
}

/** Whether the database is a Citus coordinator. */
export async function hasCitus(connection: Connection): Promise<boolean> {
  const rows = await connection.query("select from pg_extension where extname = 'citus'")
  return rows.length > 0
}

async function distribute(connection: Connection, partitions: number): Promise<CitusReport> {
  // "citus" in ASCII. One process distributes, the others wait for it.
  await connection.query('select pg_advisory_xact_lock($1)', [0x6369747573])
  const workers = await countWorkers(connection)
  const tables = await undistributedTables(connection)
  if (tables.length > 0 && workers === 0)
    throw new OperatorError(
      "The database has the extension citus, but no worker. Add workers with citus_add_node('host', port), or drop the extension to use one PostgreSQL.",
    )
  // With foreign keys between the tables, Citus asks for one connection per worker.
  await connection.execute(
    "set local citus.multi_shard_modify_mode = 'sequential'; set local client_min_messages = warning",
  )
  for (const { name, isCopied } of tables) {
    if (isCopied) await connection.query('select create_reference_table($1::regclass)', [name])
    else if (name === firstTable) {
      const shards = await chooseShardCount(connection, partitions, workers)
      await connection.query('select create_distributed_table($1::regclass, $2, shard_count => $3)', [
        name,
        distributedBy,
        shards,
      ])
    } else
      await connection.query('select create_distributed_table($1::regclass, $2, colocate_with => $3)', [
        name,
        distributedBy,
        firstTable,
      ])
  }
  const functions = await undistributedFunctions(connection)
  for (const { signature, isOfPartition } of functions) {
    if (isOfPartition) await adaptToCluster(connection, signature)
    if (isOfPartition)
      await connection.query(
        "select create_distributed_function($1::regprocedure, 'p_partition', colocate_with => $2)",
        [signature, firstTable],
      )
    else await connection.query('select create_distributed_function($1::regprocedure)', [signature])
  }
  await setRebalanceStrategy(connection, partitions)
  if (tables.length + functions.length > 0) await turnOffJit(connection)
  return { workers, tables: tables.length, functions: functions.length }
}

/** Found in functions that take one partition or, with null, all of them. */
const anyPartition =
  /coalesce\(p_partition, (?:\w+\.partition|partition_of\(\w+\.\w+\)|min\(partition_of\(\w+\.\w+\)\))\)/g

/** The form in which `pg_get_functiondef` writes it. */
const genericPlans = " SET plan_cache_mode TO 'force_generic_plan'\n"

/**
 * On a cluster a call always names its partition. Citus finds the shard quickly only if a column is compared with the parameter itself:
 * with `coalesce`, a hold and its end took several times the CPU time. Citus must also know the partition when it plans.
 */
async function adaptToCluster(connection: Connection, signature: string): Promise<void> {
  const [row] = await connection.query<{ text: string }>('select pg_get_functiondef($1::regprocedure) as text', [
    signature,
  ])
  const text = row!.text.replaceAll(anyPartition, 'p_partition').replace(genericPlans, '')
  if (text !== row!.text) await connection.execute(text)
}

/**
 * Sessions on the workers do not inherit `set jit = off` from ours. With JIT compilation there, a hold and its end took five times the
 * CPU time. Citus passes the setting on to all workers, also to those that are added later. Where the role may not change the database,
 * `penny doctor` warns.
 */
async function turnOffJit(connection: Connection): Promise<void> {
  await connection.execute(
    `do $$ begin
       execute format('alter database %I set jit = off', current_database());
     exception when insufficient_privilege then null;
     end $$`,
  )
  // This session's connections to the workers have the old setting: they are closed with the transaction.
  await connection.execute('set local citus.max_cached_conns_per_worker = 0')
}

async function countWorkers(connection: Connection): Promise<number> {
  const [row] = await connection.query<{ count: number }>(
    "select count(*)::int as count from pg_dist_node where isactive and shouldhaveshards and noderole = 'primary'",
  )
  return row!.count
}

type Table = { readonly name: string; readonly isCopied: boolean }

/** In the order of distribution: the first table, then those with foreign keys to it. */
async function undistributedTables(connection: Connection): Promise<readonly Table[]> {
  const rows = await connection.query<{ name: string; has_partition: boolean }>(
    `select c.relname as name, a.attname is not null as has_partition
       from pg_class c
       join pg_namespace n on n.oid = c.relnamespace and n.nspname = current_schema()
       -- The first column: others only mention the partition of an account.
       left join pg_attribute a on a.attrelid = c.oid and a.attname = $1 and a.attnum = 1
      where c.relkind in ('r', 'p') and not c.relispartition
        and not exists (select from pg_dist_partition d where d.logicalrelid = c.oid)
      order by c.relname <> $2, c.relname`,
    [distributedBy, firstTable],
  )
  return rows
    .map(({ name, has_partition }) => ({ name, isCopied: copiedTables.includes(name), isDistributed: has_partition }))
    .filter(({ isCopied, isDistributed }) => isCopied || isDistributed)
}

type SqlFunction = { readonly signature: string; readonly isOfPartition: boolean }

async function undistributedFunctions(connection: Connection): Promise<readonly SqlFunction[]> {
  const rows = await connection.query<{ signature: string; of_partition: boolean }>(
    `select p.oid::regprocedure::text as signature, coalesce(p.proargnames[1] = 'p_partition', false) as of_partition
       from pg_proc p
       join pg_namespace n on n.oid = p.pronamespace and n.nspname = current_schema()
       left join pg_catalog.pg_dist_object o on o.classid = 'pg_proc'::regclass and o.objid = p.oid
      where p.proname <> all ($1::text[])
        and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')
        and (o.objid is null or (p.proargnames[1] = 'p_partition' and o.distribution_argument_index is null))
      order by 1`,
    [[...localFunctions, costFunction]],
  )
  return rows.map(({ signature, of_partition }) => ({ signature, isOfPartition: of_partition }))
}

/**
 * The number of shards that spreads the partitions most evenly over the workers. Citus hashes the number of a partition into a range, and
 * assigns the ranges to the workers in turn: with an arbitrary number of shards, two workers could get five and three of eight
 * partitions.
 */
async function chooseShardCount(connection: Connection, partitions: number, workers: number): Promise<number> {
  const rows = await connection.query<{ hash: number }>(
    'select worker_hash(p::smallint) as hash from generate_series(0, $1::int - 1) as p',
    [partitions],
  )
  const hashes = rows.map(({ hash }) => hash)
  let best = { shards: 0, worst: Number.POSITIVE_INFINITY }
  for (let shards = Math.max(partitions, workers); shards <= Math.max(4 * partitions, 4 * workers); shards += 1) {
    const places = hashes.map((hash) => shardOf(hash, shards))
    // First the partitions on the fullest worker, then those in the fullest shard, which can be moved only together.
    const worst = fullest(places.map((place) => place % workers)) * partitions + fullest(places)
    if (worst < best.worst) best = { shards, worst }
  }
  return best.shards
}

/** Divides the hashes, which are signed 32-bit integers, as Citus does. */
function shardOf(hash: number, shards: number): number {
  return Math.min(Math.floor((hash + 2 ** 31) / Math.floor(2 ** 32 / shards)), shards - 1)
}

function fullest(places: readonly number[]): number {
  return Math.max(
    ...Map.groupBy(places, (place) => place)
      .values()
      .map(({ length }) => length),
  )
}

const costFunction = 'partitions_of_shard'

/** Makes `citus_rebalance_start` spread partitions. By default it spreads shards, many of which are empty. */
async function setRebalanceStrategy(connection: Connection, partitions: number): Promise<void> {
  const [current] = await connection.query<{ partitions: number }>(
    `select substring(prosrc from 'generate_series\\(1, (\\d+)\\)')::int as partitions from pg_proc where proname = $1`,
    [costFunction],
  )
  // Never fewer: a command may lack the service's LEDGER_PARTITIONS. Not every time: Citus creates the function on every worker, so a node
  // could not start while one is down.
  if ((current?.partitions ?? 0) < partitions)
    await connection.execute(
      `create or replace function ${costFunction}(bigint) returns real language sql stable as $cost$
         select count(*)::real from generate_series(1, ${partitions}) as p, pg_dist_shard s
          where s.shardid = $1 and worker_hash((p - 1)::smallint) between s.shardminvalue::int and s.shardmaxvalue::int
       $cost$`,
    )
  const known = await connection.query('select from pg_dist_rebalance_strategy where name = $1', [strategy])
  if (known.length > 0) return
  await connection.query(
    `select citus_add_rebalance_strategy($1, '${costFunction}', 'citus_node_capacity_1', 'citus_shard_allowed_on_node_true', 0.1, 0.01)`,
    [strategy],
  )
  await connection.query('select citus_set_default_rebalance_strategy($1)', [strategy])
}
