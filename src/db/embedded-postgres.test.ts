import assert from 'node:assert/strict'
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, readlink, realpath, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { after, type TestContext, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'
import { postgres15 } from '../../test/postgres-versions.ts'
import { atEnd } from '../../test/support/at-end.ts'
import { until } from '../../test/support/until.ts'
import { type Database, isConnectionLost, openDatabase } from './database.ts'
import { readPostmasterPid } from './embedded/postmaster.ts'
import { removeSocketLink } from './embedded/socket-link.ts'
import { type EmbeddedPostgres, locateEmbeddedPostgres, startEmbeddedPostgres } from './embedded-postgres.ts'

const execute = promisify(execFile)
const isRoot = process.getuid?.() === 0
const linuxRootOnly = isRoot && process.platform === 'linux' ? {} : { skip: 'needs root on Linux' }
const linuxOnly = { skip: process.platform !== 'linux' }

for (const packageRoot of [undefined, await postgres15()]) {
  const version = packageRoot === undefined ? '18' : '15'

  test(`the database is durable and not reachable by other users (PostgreSQL ${version})`, async (t) => {
    const dataDir = await temporaryFolder(t)
    const postgres = await start(t, dataDir, packageRoot)
    const database = open(t, postgres)
    const settings = await database.query<{ name: string; setting: string }>(
      'select name, setting from pg_settings where name = any($1)',
      [['fsync', 'synchronous_commit', 'full_page_writes', 'data_checksums', 'listen_addresses', 'TimeZone']],
    )
    assert.deepEqual(Object.fromEntries(settings.map(({ name, setting }) => [name, setting])), {
      TimeZone: 'UTC',
      data_checksums: 'on',
      fsync: 'on',
      full_page_writes: 'on',
      listen_addresses: '',
      synchronous_commit: 'on',
    })
    assert.equal((await stat(dataDir)).mode & 0o777, 0o711)
    assert.equal((await stat(join(dataDir, 'postgres'))).mode & 0o777, 0o700)
    assert.equal((await stat(join(dataDir, 'postgres.log'))).mode & 0o777, 0o600)
  })

  test(`what was written is there after a restart (PostgreSQL ${version})`, async (t) => {
    const dataDir = await preparedFolder(t, packageRoot)
    const first = await start(t, dataDir, packageRoot)
    await writeRow(first, 7)
    await first.stop()
    const second = await start(t, dataDir, packageRoot)
    assert.equal(second.url, first.url)
    assert.deepEqual(await readRows(second), [7])
  })

  // Killing the whole process group is the harshest form of a Ctrl-C at the terminal: PostgreSQL is in its own session.
  test(`kill -9 of the service ends its server too, and the next start has its data (PostgreSQL ${version})`, async (t) => {
    const dataDir = await preparedFolder(t, packageRoot)
    const { child } = await startInChild(t, dataDir, packageRoot)
    process.kill(-child.pid!, 'SIGKILL')
    await until(async () => (await readPostmasterPid(join(dataDir, 'postgres'))) === undefined)
    assert.deepEqual(await readRows(await start(t, dataDir, packageRoot)), [1])
  })

  test(`a start right after kill -9 of the service waits for its server (PostgreSQL ${version})`, async (t) => {
    const dataDir = await preparedFolder(t, packageRoot)
    const { child, pid } = await startInChild(t, dataDir, packageRoot)
    process.kill(-child.pid!, 'SIGKILL')
    const postgres = await start(t, dataDir, packageRoot)
    assert.notEqual(postgres.pid, pid)
    assert.deepEqual(await readRows(postgres), [1])
  })

  test(`a service and its PostgreSQL that are killed together start again immediately (PostgreSQL ${version})`, async (t) => {
    const dataDir = await preparedFolder(t, packageRoot)
    for (let round = 0; round < 3; round += 1) {
      const { child, pid } = await startInChild(t, dataDir, packageRoot)
      process.kill(-child.pid!, 'SIGKILL')
      process.kill(pid, 'SIGKILL')
      const postgres = await start(t, dataDir, packageRoot)
      assert.equal((await readRows(postgres)).length, round + 1)
      await postgres.stop()
    }
  })

  test(`committed rows survive kill -9 of PostgreSQL, which restarts automatically (PostgreSQL ${version})`, async (t) => {
    const dataDir = await preparedFolder(t, packageRoot)
    const database = open(t, await start(t, dataDir, packageRoot))
    await database.query('create table t (id bigint primary key)')
    const acknowledged: bigint[] = []
    for (let id = 0n; id < 200n; id += 1n) {
      if (id % 50n === 49n) await killServer(dataDir)
      if (await insert(database, id)) acknowledged.push(id)
    }
    const rows = await untilBack(() => database.query<{ id: bigint }>('select id from t order by id'))
    const stored = new Set(rows.map(({ id }) => id))
    assert.deepEqual(
      acknowledged.filter((id) => !stored.has(id)),
      [],
    )
    assert.equal(acknowledged.length >= 100, true, 'the service kept working after the kills')
  })
}

test('a second service on the same data folder is refused with a clear line', async (t) => {
  const dataDir = await preparedFolder(t)
  const postgres = await start(t, dataDir)
  await assert.rejects(startEmbeddedPostgres({ dataDir }), {
    name: 'AlreadyRunningError',
    message: `Another penny (process ${process.pid}) is running on ${dataDir}. Stop it, or set DATA_DIR to another folder.`,
  })
  await writeRow(postgres, 1)
})

test('of two services that start concurrently on a new folder, one wins and the other is refused', async (t) => {
  const dataDir = await temporaryFolder(t)
  const results = await Promise.allSettled([start(t, dataDir), start(t, dataDir)])
  const refused = results.filter((result) => result.status === 'rejected')
  assert.deepEqual(
    refused.map(({ reason }) => reason.name),
    ['AlreadyRunningError'],
  )
  assert.deepEqual((await readdir(dataDir)).sort(), ['postgres', 'postgres.log'])
})

test('a process that a killed server left hanging does not keep the next from starting', linuxOnly, async (t) => {
  const dataDir = await preparedFolder(t)
  const { promise: isBack, resolve } = Promise.withResolvers<void>()
  const told = (line: string) => line === 'PostgreSQL is back.' && resolve()
  const postgres = await startEmbeddedPostgres({ dataDir, onProgress: told, onLost: assert.ifError })
  atEnd(t, () => postgres.stop())
  const [backend] = await open(t, postgres).query<{ pid: number }>('select pg_backend_pid() as pid')
  process.kill(backend!.pid, 'SIGSTOP')
  process.kill(postgres.pid, 'SIGKILL')
  await isBack
  await writeRow(postgres, 1)
})

test('a server that stops leaves no process behind', linuxOnly, async (t) => {
  const postgres = await start(t, await preparedFolder(t))
  const session = postgres.pid
  assert.notDeepEqual(await processesOf(session), [])
  await postgres.stop()
  await until(async () => (await processesOf(session)).length === 0)
})

test('a signal to every process of the session of the server does not interrupt it', linuxOnly, async (t) => {
  const postgres = await start(t, await preparedFolder(t))
  const database = open(t, postgres)
  await database.query('create table t (id bigint primary key)')
  // systemd sends its signal to all of them. The server itself would shut down.
  for (const pid of await processesOf(postgres.pid)) if (pid !== postgres.pid) process.kill(pid, 'SIGTERM')
  for (let id = 0n; id < 20n; id += 1n) assert.equal(await insert(database, id), true)
  const [row] = await database.query<{ count: bigint }>('select count(*) from t')
  assert.equal(row!.count, 20n)
})

test('a large log is rotated when the server starts', async (t) => {
  const dataDir = await preparedFolder(t)
  const log = join(dataDir, 'postgres.log')
  await writeFile(log, 'early'.padEnd(16 * 1024 * 1024 + 1))
  await start(t, dataDir)
  assert.match(await readFile(`${log}.1`, 'utf8'), /^early/)
  assert.match(await readFile(log, 'utf8'), /^.*LOG:.*starting PostgreSQL/)
})

test('a folder can be taken over as soon as its service has stopped', async (t) => {
  const dataDir = await preparedFolder(t)
  const first = await start(t, dataDir)
  const stopping = first.stop()
  const second = await start(t, dataDir)
  await stopping
  await writeRow(second, 1)
  assert.deepEqual(await readRows(second), [1])
})

test('a stale postmaster.pid whose number now belongs to another process does not stop the start', async (t) => {
  const dataDir = await preparedFolder(t)
  const { child, pid } = await startInChild(t, dataDir)
  process.kill(-child.pid!, 'SIGKILL')
  process.kill(-pid, 'SIGKILL')
  const stranger = await spawnStranger(t, join(dataDir, 'postgres'))
  for (const name of ['postmaster.pid', '.s.PGSQL.5432.lock']) {
    const file = join(dataDir, 'postgres', name)
    await writeFile(file, (await readFile(file, 'utf8')).replace(/^\d+/, String(stranger.pid)))
  }
  const postgres = await start(t, dataDir)
  assert.deepEqual(await readRows(postgres), [1])
  assert.equal(stranger.exitCode ?? stranger.signalCode, null)
})

test('a data folder with a path longer than a socket may have works', async (t) => {
  const dataDir = join(await temporaryFolder(t), 'a folder with spaces & 100% signs'.padEnd(100, '-'), 'é'.repeat(50))
  const postgres = await start(t, dataDir)
  await writeRow(postgres, 1)
  assert.deepEqual(await readRows(postgres), [1])
})

test('a tool beside the service finds its server, and finds none when it has stopped', async (t) => {
  const dataDir = await temporaryFolder(t)
  assert.equal(await locateEmbeddedPostgres(dataDir), undefined)
  const postgres = await start(t, dataDir)
  assert.equal(await locateEmbeddedPostgres(dataDir), postgres.url)
  const link = new URL(postgres.url).searchParams.get('host')!
  assert.equal(await readlink(link), join(dataDir, 'postgres'))
  await postgres.stop()
  assert.equal(await locateEmbeddedPostgres(dataDir), undefined)
  await assert.rejects(readlink(link), { code: 'ENOENT' })
})

test('a data folder of another major version is refused with a clear line', async (t) => {
  const dataDir = await temporaryFolder(t)
  const postgres = await start(t, dataDir, await postgres15())
  await postgres.stop()
  await assert.rejects(startEmbeddedPostgres({ dataDir }), {
    message: /postgres was created by PostgreSQL 15; this version of penny has PostgreSQL 18: upgrade/,
  })
})

test('a server that cannot start says why in one line', async (t) => {
  const dataDir = await preparedFolder(t)
  const postgres = await start(t, dataDir)
  await postgres.stop()
  await rm(join(dataDir, 'postgres', 'global', 'pg_control'))
  await assert.rejects(startEmbeddedPostgres({ dataDir }), (error: Error) => {
    assert.match(error.message, /^PostgreSQL does not start: /)
    assert.doesNotMatch(error.message, /\n/)
    assert.match(error.message, /postgres\.log/)
    return true
  })
})

test('PostgreSQL is given none of our secrets', linuxOnly, async (t) => {
  process.env.MASTER_KEY = 'a secret'
  atEnd(t, () => delete process.env.MASTER_KEY)
  const postgres = await start(t, await preparedFolder(t))
  const environment = await readFile(`/proc/${postgres.pid}/environ`, 'utf8')
  assert.doesNotMatch(environment, /MASTER_KEY|a secret/)
})

test('as root, PostgreSQL runs as nobody', linuxRootOnly, async (t) => {
  const postgres = await start(t, await preparedFolder(t))
  assert.equal(await userOf(postgres.pid), await idOf('nobody'))
})

test(
  'as root below a folder that only root can enter, PostgreSQL runs as nobody all the same',
  linuxRootOnly,
  async (t) => {
    const closed = await temporaryFolder(t)
    const dataDir = join(closed, 'data')
    const postgres = await start(t, dataDir)
    assert.equal((await stat(closed)).mode & 0o777, 0o700)
    assert.equal(await userOf(postgres.pid), await idOf('nobody'))
    await writeRow(postgres, 1)
    await postgres.stop()
    assert.deepEqual(await readRows(await start(t, dataDir)), [1])
  },
)

test("as root on an ordinary user's data folder, PostgreSQL runs as that user", linuxRootOnly, async (t) => {
  const dataDir = await preparedFolder(t)
  await (await start(t, dataDir)).stop()
  await execute('chown', ['-R', '1234:1234', join(dataDir, 'postgres')])
  const postgres = await start(t, dataDir)
  assert.equal(await userOf(postgres.pid), 1234)
  await writeRow(postgres, 1)
})

const prepared = new Map<string, Promise<string>>()
after(async () => {
  for (const dataDir of prepared.values()) await rm(await dataDir, { recursive: true, force: true })
})

async function temporaryFolder(t: TestContext): Promise<string> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'penny-embedded-')))
  atEnd(t, () => rm(folder, { recursive: true, force: true }))
  atEnd(t, () => removeSocketLink(join(folder, 'postgres')))
  return folder
}

/** A data folder that PostgreSQL has already used: copying one is much faster than creating one. */
async function preparedFolder(t: TestContext, packageRoot?: string): Promise<string> {
  const key = packageRoot ?? ''
  prepared.set(key, prepared.get(key) ?? prepare(packageRoot))
  const dataDir = await temporaryFolder(t)
  await execute('cp', ['-a', join(await prepared.get(key)!, 'postgres'), dataDir])
  return dataDir
}

async function prepare(packageRoot?: string): Promise<string> {
  const dataDir = await mkdtemp(join(tmpdir(), 'penny-embedded-'))
  const postgres = await startEmbeddedPostgres({ dataDir, packageRoot })
  await postgres.stop()
  return dataDir
}

async function start(t: TestContext, dataDir: string, packageRoot?: string): Promise<EmbeddedPostgres> {
  const postgres = await startEmbeddedPostgres({ dataDir, packageRoot })
  atEnd(t, () => postgres.stop())
  return postgres
}

function open(t: TestContext, { url }: EmbeddedPostgres): Database {
  const database = openDatabase({ url, poolMax: 2, applicationName: 'test' })
  atEnd(t, () => database.close())
  return database
}

/** A service in its own process and process group, as at a terminal, that has committed one more row. */
async function startInChild(t: TestContext, dataDir: string, packageRoot?: string) {
  const script = `
    import { startEmbeddedPostgres } from ${JSON.stringify(import.meta.resolve('./embedded-postgres.ts'))}
    import { openDatabase } from ${JSON.stringify(import.meta.resolve('./database.ts'))}
    const postgres = await startEmbeddedPostgres(${JSON.stringify({ dataDir, packageRoot })})
    const database = openDatabase({ url: postgres.url, poolMax: 1, applicationName: 'child' })
    await database.query('create table if not exists t (id bigint)')
    await database.query('insert into t values (1)')
    console.log(postgres.pid)`
  const args = ['--input-type=module', '--eval', script]
  const child = spawn(process.execPath, args, { detached: true, stdio: ['ignore', 'pipe', 'inherit'] })
  atEnd(t, () => child.kill('SIGKILL'))
  for await (const line of createInterface({ input: child.stdout })) return { child, pid: Number(line) }
  throw new Error('the child said nothing')
}

/** A process of the user that runs PostgreSQL: only such a process can be mistaken for the old server. */
async function spawnStranger(t: TestContext, folder: string): Promise<ChildProcess> {
  const { uid, gid } = await stat(folder)
  const stranger = spawn('sleep', ['600'], { stdio: 'ignore', cwd: '/', ...(isRoot ? { uid, gid } : {}) })
  atEnd(t, () => stranger.kill())
  await once(stranger, 'spawn')
  return stranger
}

async function writeRow({ url }: EmbeddedPostgres, id: number): Promise<void> {
  const database = openDatabase({ url, poolMax: 1, applicationName: 'test' })
  await database.query('create table if not exists t (id bigint)')
  await database.query('insert into t values ($1)', [id])
  await database.close()
}

async function readRows({ url }: EmbeddedPostgres): Promise<number[]> {
  const database = openDatabase({ url, poolMax: 1, applicationName: 'test' })
  const rows = await database.query<{ id: bigint }>('select id from t order by id')
  await database.close()
  return rows.map(({ id }) => Number(id))
}

async function killServer(dataDir: string): Promise<void> {
  const pid = await readPostmasterPid(join(dataDir, 'postgres'))
  try {
    process.kill(pid!, 'SIGKILL')
  } catch (error) {
    // Already dead from the last kill, and not restarted yet.
    assert.equal((error as NodeJS.ErrnoException).code, 'ESRCH')
  }
}

/** Whether the row was acknowledged. */
async function insert(database: Database, id: bigint): Promise<boolean> {
  try {
    await database.query('insert into t values ($1)', [id])
    return true
  } catch (error) {
    assert.equal(isConnectionLost(error), true, String(error))
    await untilBack(() => database.query('select 1'))
    return false
  }
}

/** Retries until the connection works again. */
async function untilBack<Result>(work: () => Promise<Result>): Promise<Result> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await work()
    } catch (error) {
      if (!isConnectionLost(error) || attempt === 10_000) throw error
      await pause(5)
    }
  }
}

/** All processes in the session of a server. */
async function processesOf(session: number): Promise<readonly number[]> {
  const { stdout } = await execute('ps', ['-o', 'pid=', '--sid', String(session)]).catch(() => ({ stdout: '' }))
  return stdout.split('\n').filter(Boolean).map(Number)
}

async function userOf(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  return Number(/^Uid:\s+(\d+)/m.exec(status)?.[1])
}

async function idOf(user: string): Promise<number> {
  return Number((await execute('id', ['-u', user])).stdout)
}
