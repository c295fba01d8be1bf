import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { OperatorError } from '../errors.ts'
import type { Connection, Database } from './database.ts'
import { liftGuard, setGuard, shutLedger } from './migration-guard.ts'

export const migrationsFolder = fileURLToPath(new URL('../../migrations/', import.meta.url))

// "migrate" in ASCII: no other lock uses this number.
const migrationLock = '30796665482998885'
const statementMaxMs = 600_000
// While a migration waits for a lock, every later statement waits behind it. So it times out quickly and retries later.
const lockMaxMs = 1_000
const attemptsMax = 60
const liftAttemptsMax = 5
const pauseMaxMs = 2_000
const functionsFolder = 'functions'

const tableDefinition = `
  create table if not exists migrations (
    number     integer     primary key,
    name       text        not null,
    sha256     text        not null,
    applied_at timestamptz not null default clock_timestamp()
  )`

const versionsDefinition = `
  create table if not exists function_versions (
    name       text        not null,
    sha256     text        not null,
    applied_at timestamptz not null default clock_timestamp(),
    primary key (name, sha256)
  )`

/** Later than the last version, also when the clock was set back: the order decides which version is newer. */
const versionInsertion = `
  insert into function_versions (name, sha256, applied_at)
  select $1, $2, greatest(clock_timestamp(), max(applied_at) + interval '1 microsecond') from function_versions where name = $1`

type Migration = { readonly number: number; readonly name: string; readonly sha256: string; readonly text: string }
type Landed = { readonly number: number; readonly name: string; readonly sha256: string }
/** A file of `functions/`. It creates the function of the same name. */
type SqlFunction = { readonly name: string; readonly sha256: string; readonly text: string }

/**
 * Applies the folder's numbered files that the database does not have yet, each in its own transaction, and then the changed files
 * of its `functions/`, all in one transaction. Forward only: an earlier text of a function is refused unless an edit gave it a new
 * hash, so that restarting a node of the previous version cannot undo what the newer one did. Several nodes may migrate
 * concurrently: one of them takes each step. Other nodes may serve meanwhile: see `migration-guard.ts`.
 */
export async function migrate(
  database: Database,
  folder: string,
  onProgress: (line: string) => void = () => {},
): Promise<{ applied: string[] }> {
  const files = await readMigrations(folder)
  const functions = await readFunctions(folder)
  const applied: string[] = []
  const pending = pendingOf(files, await readLanded(database)).length
  if (pending > 0) onProgress(`Applying ${pending} migration${pending === 1 ? '' : 's'}.`)
  // Each iteration applies one file, here or on another node; the last one finds nothing to do.
  for (let turn = 0; turn <= files.length; turn += 1) {
    if (pendingOf(files, await readLanded(database)).length === 0) break
    const apply = () => database.transaction((connection) => applyFirstPending(connection, files), { statementMaxMs })
    const name = await withRetries(apply, attemptsMax)
    // Another node has applied the last one.
    if (name === undefined) break
    applied.push(name)
  }
  if ((await changedFunctions(database, functions)).length > 0) {
    const apply = () =>
      database.transaction((connection) => replaceFunctions(connection, functions), { statementMaxMs })
    const replaced = await withRetries(apply, attemptsMax)
    if (replaced.length > 0) applied.push(countOf(replaced))
  }
  // Includes a guard that a crashed node left behind. If it cannot be lifted now, no harm is done: it no longer refuses anything.
  const alone = <Result>(work: (connection: Connection) => Promise<Result>) =>
    database.transaction(async (connection) => {
      await lockOut(connection)
      return work(connection)
    })
  await withRetries(() => liftGuard(database, alone), liftAttemptsMax).catch((error: unknown) => {
    if (!isLockConflict(error)) throw error
  })
  return { applied }
}

/** What `migrate` would apply: file names in order, and the number of functions. */
export async function pendingMigrations(database: Database, folder: string): Promise<string[]> {
  const pending = pendingOf(await readMigrations(folder), await readLanded(database))
  const changed = await changedFunctions(database, await readFunctions(folder))
  return [...pending.map(({ name }) => name), ...(changed.length === 0 ? [] : [countOf(changed)])]
}

/** Retries lock conflicts. */
async function withRetries<Result>(work: () => Promise<Result>, triesMax: number): Promise<Result> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await work()
    } catch (error) {
      if (!isLockConflict(error) || attempt === triesMax) throw error
      await pause(Math.min(100 * attempt, pauseMaxMs))
    }
  }
}

/** Keeps other nodes from migrating until the end of the transaction. */
async function lockOut(connection: Connection): Promise<void> {
  // Only this wait may be long: waiting for another node's migration blocks no other statement.
  await connection.query('set local lock_timeout = 0')
  await connection.query('select pg_advisory_xact_lock($1)', [migrationLock])
  await connection.query(`set local lock_timeout = ${lockMaxMs}`)
}

async function applyFirstPending(connection: Connection, files: readonly Migration[]): Promise<string | undefined> {
  await lockOut(connection)
  await connection.query(tableDefinition)
  const [next] = pendingOf(files, await readLanded(connection))
  if (next === undefined) return undefined
  const isGuarded = await shutLedger(connection)
  await connection.execute(next.text).catch((error: unknown) => {
    throw isLockConflict(error) ? error : new MigrationFailedError(next.name, error)
  })
  if (isGuarded) await setGuard(connection)
  const landed = 'insert into migrations (number, name, sha256) values ($1, $2, $3)'
  await connection.query(landed, [next.number, next.name, next.sha256])
  return next.name
}

/** Creates the changed functions again and returns them; empty when another node has already done so. */
async function replaceFunctions(
  connection: Connection,
  functions: readonly SqlFunction[],
): Promise<readonly SqlFunction[]> {
  await lockOut(connection)
  await connection.query(versionsDefinition)
  const changed = await changedFunctions(connection, functions)
  if (changed.length === 0) return []
  const isGuarded = await shutLedger(connection)
  // They call each other, regardless of file order.
  await connection.query('set local check_function_bodies = off')
  for (const { name, sha256, text } of changed) {
    // Dropped and created instead of replaced: parameters and result types may have changed.
    const old = await connection.query<{ signature: string }>(
      'select oid::regprocedure::text as signature from pg_proc where proname = $1 and pronamespace = current_schema()::regnamespace',
      [name],
    )
    for (const { signature } of old) await connection.execute(`drop function ${signature}`)
    await connection.execute(text).catch((error: unknown) => {
      throw isLockConflict(error) ? error : new MigrationFailedError(`${functionsFolder}/${name}`, error)
    })
    await connection.query(versionInsertion, [name, sha256])
  }
  if (isGuarded) await setGuard(connection)
  return changed
}

/** The functions whose last applied text differs. */
async function changedFunctions(
  connection: Connection,
  functions: readonly SqlFunction[],
): Promise<readonly SqlFunction[]> {
  const versions = await readVersions(connection)
  return functions.filter(({ name, sha256 }) => {
    const known = versions.filter((version) => version.name === name)
    const last = known.at(-1)
    if (last?.sha256 === sha256) return false
    if (known.some((version) => version.sha256 === sha256)) {
      const hint = ' To go back to an earlier text on purpose, change its comment.'
      throw new DatabaseNewerError(`a later version of the function ${name}`, hint)
    }
    return true
  })
}

async function readVersions(connection: Connection): Promise<readonly Omit<SqlFunction, 'text'>[]> {
  const [table] = await connection.query<{ name: string | null }>(
    "select to_regclass('function_versions')::text as name",
  )
  if (table?.name == null) return []
  return connection.query('select name, sha256 from function_versions order by applied_at')
}

async function readFunctions(folder: string): Promise<readonly SqlFunction[]> {
  const names = await readdir(join(folder, functionsFolder)).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
  return Promise.all(
    names.sort().map(async (file) => {
      const text = await readFile(join(folder, functionsFolder, file), 'utf8')
      return { name: file.replace(/\.sql$/, ''), sha256: sha256Of(text), text }
    }),
  )
}

function countOf({ length }: readonly SqlFunction[]): string {
  return length === 1 ? '1 function' : `${length} functions`
}

/** The lock timed out (55P03), or there was a deadlock (40P01). */
function isLockConflict(error: unknown): boolean {
  return error instanceof pg.DatabaseError && (error.code === '55P03' || error.code === '40P01')
}

async function readLanded(connection: Connection): Promise<Landed[]> {
  const [table] = await connection.query<{ name: string | null }>("select to_regclass('migrations')::text as name")
  if (table?.name == null) return []
  return connection.query<Landed>('select number, name, sha256 from migrations order by number')
}

function pendingOf(files: readonly Migration[], landed: readonly Landed[]): readonly Migration[] {
  for (const { number, name, sha256 } of landed) {
    const file = files[number - 1]
    if (file === undefined) {
      throw new DatabaseNewerError(`migration ${name}, the newest known here is ${files.at(-1)?.name ?? 'none'}`)
    }
    if (file.sha256 !== sha256)
      throw new OperatorError(
        `Migration ${file.name} was changed after it was applied to this database. Undo the change and add a new migration.`,
      )
  }
  return files.slice(landed.length)
}

/** The files in order. Numbered 1, 2, 3 … without a gap, so that none can be missing or added later in between. */
async function readMigrations(folder: string): Promise<Migration[]> {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.sql')).sort()
  return Promise.all(
    names.map(async (file, index) => {
      const number = index + 1
      if (!/^\d{4}_[a-z0-9_]+\.sql$/.test(file) || Number.parseInt(file, 10) !== number) {
        throw new OperatorError(
          `"${file}" is not a valid name for the next migration. It must be ${String(number).padStart(4, '0')}_words.sql, numbered without a gap.`,
        )
      }
      const text = await readFile(join(folder, file), 'utf8')
      return { number, name: file.slice(0, -'.sql'.length), sha256: sha256Of(text), text }
    }),
  )
}

function sha256Of(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}

/** Refuses only a start: running nodes continue while their successors start. */
export class DatabaseNewerError extends OperatorError {
  constructor(content: string, hint = '') {
    super(`The database is newer than this version of penny: it has ${content}. Start a newer version.${hint}`)
  }
}

class MigrationFailedError extends OperatorError {
  constructor(name: string, cause: unknown) {
    super(`Migration ${name} failed and was rolled back: ${String(cause)}`, cause)
  }
}
