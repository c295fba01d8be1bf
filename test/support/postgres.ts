import { createHash, randomBytes } from 'node:crypto'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type pg from 'pg'
import { distributeLedger } from '../../src/db/citus.ts'
import { type Database, openDatabase } from '../../src/db/database.ts'
import { isPostmasterOf, readPostmasterPid } from '../../src/db/embedded/postmaster.ts'
import { startEmbeddedPostgres } from '../../src/db/embedded-postgres.ts'
import { migrate } from '../../src/db/migrate.ts'
import { createOnAll, onServer, withDatabase } from './citus-cluster.ts'

/** A database of its own for one test, migrated and empty. */
export type TestDatabase = {
  readonly url: string
  readonly database: Database
  drop(): Promise<void>
}

const ownMigrations = fileURLToPath(new URL('../../migrations', import.meta.url))
const folderPrefix = 'penny-test-'
const replyMaxMs = 60_000
const killMaxMs = 10_000
// "templa" in ASCII; the whole word has too many letters for a number.
const templateLock = 0x74656d706c61
/** Set by the runner when the server is the coordinator of a Citus cluster. */
const workers = process.env.TEST_CITUS_WORKERS?.split(' ') ?? []

/**
 * Clones a database from a migrated template. The test runner names a running server in TEST_DATABASE_SERVER; a test
 * file that is run by hand gets a server of its own, which ends with it.
 */
export async function testDatabase(options: { migrations?: string; poolMax?: number } = {}): Promise<TestDatabase> {
  const { migrations = ownMigrations, poolMax = 4 } = options
  const server = process.env.TEST_DATABASE_SERVER ?? withDatabase((await ownServer()).url, 'postgres')
  const template = await ensureTemplate(server, migrations)
  const name = `test_${randomBytes(8).toString('hex')}`
  // Copying files takes a third of the time of copying through the log, which pays off for large templates only.
  const clone = `create database ${name} template ${template} strategy file_copy`
  await onAll(server, (client) => client.query(clone))
  const url = withDatabase(server, name)
  // A test with a thousand concurrent queries waits on a loaded machine.
  const patience = { connectMaxMs: replyMaxMs, statementMaxMs: replyMaxMs }
  const database = openDatabase({ url, poolMax, applicationName: 'test', ...patience })
  inUse += 1
  return {
    url,
    database,
    async drop() {
      await database.close()
      await onAll(server, (client) => client.query(`drop database if exists ${name} with (force)`))
      inUse -= 1
      if (ending && inUse === 0) await (await own)?.stop()
    },
  }
}

/** Made once per server and state of the migrations; the tests that come at the same time wait for it. */
async function ensureTemplate(server: string, migrations: string): Promise<string> {
  const name = `template_${await hashOf(migrations)}`
  await onServer(server, async (client) => {
    await client.query('select pg_advisory_lock($1)', [templateLock])
    const { rowCount } = await client.query('select from pg_database where datname = $1', [name])
    if (rowCount !== 0) return
    // Renamed when it is finished: a test that was killed on the way leaves no half-migrated template.
    const unfinished = `${name}_unfinished`
    await onAll(server, (each) => each.query(`drop database if exists ${unfinished} with (force)`))
    if (workers.length > 0) await createOnAll([server, ...workers], unfinished)
    else await client.query(`create database ${unfinished}`)
    const database = openDatabase({ url: withDatabase(server, unfinished), poolMax: 1, applicationName: 'template' })
    await migrate(database, migrations)
      .then(() => distributeLedger(database, Number(process.env.LEDGER_PARTITIONS ?? 1)))
      .finally(() => database.close())
    // The coordinator last: it says whether the template is finished.
    for (const each of [...workers, server]) await onServer(each, (other) => makeTemplate(other, unfinished, name))
  })
  return name
}

async function makeTemplate(client: pg.Client, from: string, name: string): Promise<void> {
  // A template cannot be copied while a connection to it is open, and a worker of Citus always has one.
  await client.query(`alter database ${from} with allow_connections false`)
  await client.query('select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = $1', [from])
  await client.query(`alter database ${from} rename to ${name}`)
  await client.query(`alter database ${name} is_template true`)
}

/** On a cluster each database is on all servers, under one name. */
async function onAll(server: string, work: (client: pg.Client) => Promise<unknown>): Promise<void> {
  await Promise.all([server, ...workers].map((each) => onServer(each, work)))
}

async function hashOf(folder: string): Promise<string> {
  const hash = createHash('sha256')
  for (const file of (await readdir(folder, { recursive: true })).filter((name) => name.endsWith('.sql')).sort()) {
    hash
      .update(`${file}\0`)
      .update(await readFile(join(folder, file)))
      .update('\0')
  }
  return hash.digest('hex').slice(0, 16)
}

// The one piece of state: a server is too dear to be started for every test of a file.
let own: Promise<OwnServer> | undefined
let inUse = 0
let ending = false

type OwnServer = { readonly url: string; stop(): Promise<void> }

function ownServer(): Promise<OwnServer> {
  own ??= startOwnServer()
  return own
}

async function startOwnServer(): Promise<OwnServer> {
  await removeAbandoned()
  const dataDir = await mkdtemp(join(tmpdir(), `${folderPrefix}${process.pid}-`))
  const postgres = await startEmbeddedPostgres({ dataDir })
  return {
    url: postgres.url,
    async stop() {
      await postgres.stop()
      await rm(dataDir, { recursive: true, force: true })
    },
  }
}

// At the top of the module: registered inside a test, the hook would stop the server with that test. A file's own hooks
// run after this one and may still drop databases: then the last of them stops the server.
after(async () => {
  ending = true
  if (inUse === 0) await (await own)?.stop()
})

/** Stops servers of test files that were killed. */
async function removeAbandoned(): Promise<void> {
  for (const name of await readdir(tmpdir())) {
    const starter = name.startsWith(folderPrefix) ? Number.parseInt(name.slice(folderPrefix.length), 10) : Number.NaN
    if (Number.isNaN(starter) || isAlive(starter)) continue
    const dataDir = join(tmpdir(), name)
    await endServer(join(dataDir, 'postgres'))
    await rm(dataDir, { recursive: true, force: true })
  }
}

async function endServer(folder: string): Promise<void> {
  const pid = await readPostmasterPid(folder)
  if (pid === undefined) return
  const deadline = Date.now() + killMaxMs
  while ((await isPostmasterOf(pid, folder)) && Date.now() < deadline) {
    process.kill(pid, 'SIGQUIT')
    await pause(50)
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH'
  }
}
