import { pipeline } from 'node:stream/promises'
import type pg from 'pg'
import { from as copyFrom, to as copyTo } from 'pg-copy-streams'
import { OperatorError } from '../errors.ts'
import { connectClient } from './servers.ts'

export type CopyRowsOptions = {
  readonly sourceUrl: string
  readonly targetUrl: string
  /** The schemas whose rows are copied. They have the same tables in both databases. */
  readonly schemas: readonly string[]
  /** Tables that each database keeps for itself. */
  readonly except: readonly string[]
  readonly onProgress: (line: string) => void
}

export type CopiedRows = { readonly tables: number; readonly rows: bigint }

type Table = { readonly name: string; readonly columns: string; readonly needs: readonly string[] }

const connectMsMax = 10_000

/**
 * Replaces all rows of the target by those of the source, from one snapshot and in one transaction. Works between versions of PostgreSQL,
 * because rows are transferred as text. Then compares count and checksum of every table; a difference undoes everything.
 */
export async function copyRows(options: CopyRowsOptions): Promise<CopiedRows> {
  await using stack = new AsyncDisposableStack()
  const source = await open(options.sourceUrl, stack)
  const target = await open(options.targetUrl, stack)
  await source.query('begin isolation level repeatable read read only')
  await target.query('begin')
  const tables = sortByNeed(await readTables(source, options))
  await createPartitions(source, target, options.schemas)
  const triggered = await readTriggered(target, options.schemas)
  for (const name of triggered) await target.query(`alter table ${name} disable trigger user`)
  // Removes rows that migrations have written.
  await target.query(`truncate ${tables.map(({ name }) => name).join(', ')}`)
  let rows = 0n
  for (const [index, { name, columns }] of tables.entries()) {
    options.onProgress(`Copying ${name} (table ${index + 1} of ${tables.length}).`)
    // A partitioned table can be copied only by a query.
    const reading = source.query(copyTo(`copy (select ${columns} from ${name}) to stdout`))
    const writing = target.query(copyFrom(`copy ${name} (${columns}) from stdin`))
    await pipeline(reading, writing)
    rows += BigInt(writing.rowCount)
  }
  await copySequences(source, target, options.schemas)
  for (const name of triggered) await target.query(`alter table ${name} enable trigger user`)
  options.onProgress('Comparing both databases.')
  for (const table of tables) await compare(source, target, table)
  await target.query('commit')
  await target.query('analyze')
  return { tables: tables.length, rows }
}

/** Opens a session whose settings make both databases write a value as the same text. */
async function open(url: string, stack: AsyncDisposableStack): Promise<pg.Client> {
  const client = await connectClient(url, { application_name: 'penny copy', connectionTimeoutMillis: connectMsMax })
  stack.defer(() => client.end())
  await client.query(`
    set timezone = 'UTC'; set datestyle = 'ISO, YMD'; set intervalstyle = 'postgres'; set bytea_output = 'hex';
    set extra_float_digits = 1; set client_encoding = 'UTF8'; set statement_timeout = 0; set lock_timeout = '10s';
    set idle_in_transaction_session_timeout = 0`)
  return client
}

/** All tables with the tables that their foreign keys reference. Partitions belong to their parents. */
async function readTables(source: pg.Client, { schemas, except }: CopyRowsOptions): Promise<readonly Table[]> {
  const { rows } = await source.query<Table>(
    `select c.oid::regclass::text as name,
            (select string_agg(quote_ident(a.attname), ', ' order by a.attnum) from pg_attribute a
              where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = '') as columns,
            array(select f.confrelid::regclass::text from pg_constraint f
                   where f.conrelid = c.oid and f.contype = 'f' and f.confrelid <> c.oid) as needs
       from pg_class c
      where c.relnamespace = any (select s::regnamespace from unnest($1::text[]) as s) and c.relkind in ('r', 'p')
        and not c.relispartition and c.relname <> all ($2)
      order by c.oid`,
    [schemas, except],
  )
  return rows
}

/** Sorts tables after those that they reference. @throws when they reference each other in a cycle. */
function sortByNeed(tables: readonly Table[]): readonly Table[] {
  const sorted: Table[] = []
  let left = tables
  while (left.length > 0) {
    const isReady = ({ needs }: Table) => !left.some(({ name }) => needs.includes(name))
    const ready = left.filter(isReady)
    if (ready.length === 0)
      throw new Error(`${left.map(({ name }) => name).join(', ')} reference each other in a cycle`)
    sorted.push(...ready)
    left = left.filter((table) => !ready.includes(table))
  }
  return sorted
}

/** Without the partition of a month, its requests would go to the default partition and stay there. */
async function createPartitions(source: pg.Client, target: pg.Client, schemas: readonly string[]): Promise<void> {
  const { rows } = await source.query<{ name: string; parent: string; bound: string }>(
    `select c.oid::regclass::text as name, i.inhparent::regclass::text as parent, pg_get_expr(c.relpartbound, c.oid) as bound
       from pg_class c join pg_inherits i on i.inhrelid = c.oid
      where c.relispartition and c.relkind = 'r' and c.relnamespace = any (select s::regnamespace from unnest($1::text[]) as s)
      order by c.oid`,
    [schemas],
  )
  for (const { name, parent, bound } of rows)
    await target.query(`create table if not exists ${name} partition of ${parent} ${bound}`)
}

/** Tables with triggers. They are disabled during the copy: they would change rows that are already final. */
async function readTriggered(target: pg.Client, schemas: readonly string[]): Promise<readonly string[]> {
  const { rows } = await target.query<{ name: string }>(
    `select distinct c.oid::regclass::text as name from pg_class c join pg_trigger t on t.tgrelid = c.oid
      where not t.tgisinternal and c.relnamespace = any (select s::regnamespace from unnest($1::text[]) as s)`,
    [schemas],
  )
  return rows.map(({ name }) => name)
}

async function copySequences(source: pg.Client, target: pg.Client, schemas: readonly string[]): Promise<void> {
  const { rows } = await source.query<{ name: string; last: string | null }>(
    `select format('%I.%I', schemaname, sequencename) as name, last_value::text as last from pg_sequences
      where schemaname = any ($1)`,
    [schemas],
  )
  for (const { name, last } of rows) if (last !== null) await target.query('select setval($1, $2)', [name, last])
}

/** Compares the count of rows and a checksum that does not depend on their order. */
async function compare(source: pg.Client, target: pg.Client, { name, columns }: Table): Promise<void> {
  const query = `select count(*)::text as count, coalesce(sum(hashtextextended(row(${columns})::text, 0)::numeric), 0)::text as sum from ${name}`
  const read = async (client: pg.Client) => (await client.query<{ count: string; sum: string }>(query)).rows[0]!
  const [there, here] = await Promise.all([read(source), read(target)])
  if (there.count !== here.count)
    throw new OperatorError(
      `The copy of ${name} differs from the original: ${there.count} rows became ${here.count}. Nothing was copied.`,
    )
  if (there.sum !== here.sum)
    throw new OperatorError(`The copy of ${name} differs from the original: the checksums differ. Nothing was copied.`)
}
