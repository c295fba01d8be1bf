import { gatewayMigrations, gatewaySchema, schemaUrl } from '../../gateway/schema.ts'
import type { Config } from '../config/config.ts'
import { readDatabaseServers } from '../config/database-url.ts'
import { findCopyMarker, removeCopyMarker, writeCopyMarker } from '../db/copy-marker.ts'
import { type CopiedRows, copyRows } from '../db/copy-rows.ts'
import { type Database, openDatabase } from '../db/database.ts'
import { findCluster } from '../db/embedded/cluster.ts'
import { tryExclusive } from '../db/exclusive.ts'
import { migrate, migrationsFolder, pendingMigrations } from '../db/migrate.ts'
import { outside, refuseUnusable } from '../db/open-usable.ts'
import { refuseTransactionPooler } from '../db/pooler.ts'
import { findViolations } from '../ledger/audit.ts'
import { type Command, CommandError, type Invocation } from './command.ts'
import { confirm, confirmOptions, confirmUsage } from './confirm.ts'
import { createProgress } from './progress.ts'
import { withEmbeddedPostgres } from './with-database.ts'

const ledgerSchema = 'public'
/** Tables that each database keeps for itself; they are not copied. */
const ownTables = ['migrations', 'function_versions', 'database_copy']
const statementMaxMs = 600_000

export const copyDatabaseCommand: Command = {
  usage: [
    [
      'penny copy-database',
      'Copy the embedded database in DATA_DIR into the empty database at DATABASE_URL, compare both, and audit the copy. Stop the service first. Afterwards only the copy can be used',
    ],
    ['--undo', 'Use the embedded database again. Only if no service has run on the copy: its charges would be lost'],
    ...confirmUsage,
  ],
  options: { undo: { type: 'boolean' }, ...confirmOptions },
  async run(invocation) {
    const { config, options } = invocation
    if ((await findCluster(config.dataDir)) === undefined)
      throw new CommandError(
        `There is no embedded database in ${config.dataDir}. Set DATA_DIR to the service’s data folder.`,
      )
    return options.undo === true ? undo(invocation) : copy(invocation)
  },
}

async function undo(invocation: Invocation): Promise<number> {
  const { config, output } = invocation
  await withEmbeddedPostgres(config.dataDir, (url) =>
    withDatabase(url, async (source) => {
      const marker = await findCopyMarker(source)
      if (marker === undefined) throw new CommandError('The embedded database was not copied. It can be used.')
      const question = `Use the embedded database again, and never the copy at ${marker.other}? Charges made on the copy are lost.`
      await confirm(invocation, question)
      await removeCopyMarker(source)
    }),
  )
  output.write(output.json ? `${JSON.stringify({ undone: true })}\n` : 'The embedded database can be used again.\n')
  return 0
}

async function copy({ config, output }: Invocation): Promise<number> {
  const { databaseUrl, dataDir } = config
  if (databaseUrl === undefined) throw new CommandError('Set DATABASE_URL to an empty database for the copy.')
  await refuseUnusable(outside, () => refuseTransactionPooler(databaseUrl))
  const lock = await tryExclusive(databaseUrl, 'copy-database')
  if (lock === undefined) throw new CommandError('Another penny copy-database is copying into this database.')
  const progress = createProgress()
  try {
    const copied = await withEmbeddedPostgres(dataDir, (sourceUrl) =>
      withDatabase(sourceUrl, (source) =>
        withDatabase(databaseUrl, (target) =>
          copyInto({ source, sourceUrl, target, targetUrl: databaseUrl }, config, (line) => progress.step(line)),
        ),
      ),
    )
    progress.end()
    const result = { tables: copied.tables, rows: Number(copied.rows), target: nameOf(databaseUrl) }
    if (output.json) output.write(`${JSON.stringify(result)}\n`)
    else
      output.write(
        `Copied ${result.rows.toLocaleString('en')} rows of ${result.tables} tables to ${result.target}: counts and checksums agree, and the audit holds.\n` +
          'Start the service with this DATABASE_URL. The embedded database is refused from now on; keep it as a backup.\n',
      )
    return 0
  } finally {
    progress.end()
    await lock.release()
  }
}

type Pair = {
  readonly source: Database
  readonly sourceUrl: string
  readonly target: Database
  readonly targetUrl: string
}

/**
 * The order matters. The target is marked as unfinished before anything in it is changed. The source is marked as copied before the
 * target's mark is removed, so the two can never both be used.
 */
async function copyInto(pair: Pair, config: Config, onProgress: (line: string) => void): Promise<CopiedRows> {
  const { source, sourceUrl, target, targetUrl } = pair
  const schemas = await readSchemas(source)
  await refuseSource(pair, schemas)
  await refuseTarget(target, targetUrl)
  onProgress('Auditing the embedded database.')
  await refuseViolations(source, 'The embedded database')
  await writeCopyMarker(target, 'target', `the embedded database in ${config.dataDir}`)
  onProgress('Creating the tables.')
  await migrate(target, migrationsFolder)
  if (schemas.includes(gatewaySchema))
    await withDatabase(await schemaUrl(targetUrl), (gateway) => migrate(gateway, gatewayMigrations))
  const copied = await copyRows({ sourceUrl, targetUrl, schemas, except: ownTables, onProgress })
  onProgress('Auditing the copy.')
  await refuseViolations(target, 'The copy')
  await writeCopyMarker(source, 'source', nameOf(targetUrl))
  await removeCopyMarker(target)
  return copied
}

async function readSchemas(source: Database): Promise<readonly string[]> {
  const found = await source.query('select from pg_namespace where nspname = $1', [gatewaySchema])
  return found.length === 0 ? [ledgerSchema] : [ledgerSchema, gatewaySchema]
}

async function refuseSource({ source, sourceUrl, target, targetUrl }: Pair, schemas: readonly string[]): Promise<void> {
  const marker = await findCopyMarker(source)
  // The copy was interrupted at its last step: it is repeated.
  const isUnfinished = marker?.other === nameOf(targetUrl) && (await findCopyMarker(target))?.side === 'target'
  if (marker !== undefined && !isUnfinished)
    throw new CommandError(
      `The embedded database was already copied to ${marker.other}. See penny copy-database --undo.`,
    )
  const pending = await pendingMigrations(source, migrationsFolder)
  if (schemas.includes(gatewaySchema))
    pending.push(
      ...(await withDatabase(await schemaUrl(sourceUrl), (gateway) => pendingMigrations(gateway, gatewayMigrations))),
    )
  if (pending.length > 0)
    throw new CommandError(
      `The embedded database is older than this version of penny (pending: ${pending.join(', ')}). Start this version on it once, without DATABASE_URL.`,
    )
}

/** Throws unless the target is empty, or was left by an interrupted copy. */
async function refuseTarget(target: Database, targetUrl: string): Promise<void> {
  const [found] = await target.query<{ schema: string | null; encoding: string; tables: string[]; citus: boolean }>(
    `select current_schema() as schema, current_setting('server_encoding') as encoding,
            exists (select from pg_extension where extname = 'citus') as citus,
            array(select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
                   where c.relkind in ('r', 'p', 'v', 'm', 'S', 'f') and n.nspname !~ '^(pg_|information_schema$)'
                     and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'e')
                   order by c.oid limit 3) as tables`,
  )
  const { schema, encoding, tables, citus } = found!
  const name = nameOf(targetUrl)
  if (schema !== ledgerSchema)
    throw new CommandError(`${name}: the schema of new tables must be ${ledgerSchema}; it is ${schema}.`)
  if (encoding !== 'UTF8') throw new CommandError(`${name}: the encoding must be UTF8; it is ${encoding}.`)
  if (citus) throw new CommandError(`${name} has Citus. Copy into a plain PostgreSQL.`)
  const isUnfinished = (await findCopyMarker(target))?.side === 'target'
  if (tables.length > 0 && !isUnfinished)
    throw new CommandError(`${name} is not empty: it has ${tables.join(', ')}. Create a new database for the copy.`)
}

async function refuseViolations(database: Database, name: string): Promise<void> {
  const [first] = await findViolations(database)
  if (first === undefined) return
  throw new CommandError(`${name} breaks ${first.invariant} at ${first.subject}: ${first.detail}. See penny audit.`)
}

async function withDatabase<Result>(url: string, work: (database: Database) => Promise<Result>): Promise<Result> {
  const database = openDatabase({ url, poolMax: 2, applicationName: 'penny copy', statementMaxMs })
  try {
    return await work(database)
  } finally {
    await database.close()
  }
}

/** Hosts and database of a URL, without user and password. */
function nameOf(url: string): string {
  const { servers } = readDatabaseServers(url)
  const [, database = ''] = /^[^/]*\/\/[^/]*\/([^?#]*)/.exec(url) ?? []
  return `${servers.map(({ name }) => name).join(',')}/${decodeURIComponent(database)}`
}
