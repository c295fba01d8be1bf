import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { after, before, type TestContext, test } from 'node:test'
import fc from 'fast-check'
import pg from 'pg'
import { atEnd } from '../../test/support/at-end.ts'
import { type TestDatabase, testDatabase } from '../../test/support/postgres.ts'
import { until } from '../../test/support/until.ts'
import { type Database, type DatabaseOptions, isConnectionLost, isTransient, openDatabase } from './database.ts'
import { connectClient } from './servers.ts'

let shared: TestDatabase
before(async () => {
  shared = await testDatabase()
  await shared.database.execute(
    'create table notes (id bigint primary key, body text unique deferrable initially deferred)',
  )
})
after(() => shared.drop())

test('amounts come back as the exact integers that were stored', async () => {
  const int64 = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })
  const property = fc.asyncProperty(int64, fc.array(fc.option(int64)), async (one, many) => {
    const [row] = await shared.database.query('select $1::int8 as one, $2::int8[] as many', [one, many])
    assert.deepEqual(row, { one, many })
  })
  await fc.assert(property, { numRuns: 50 })
})

test('texts in arrays come back as they were stored', async () => {
  const special = fc.constantFrom(
    '',
    'NULL',
    'null',
    'a,b',
    '{',
    '}',
    '{}',
    '"',
    '\\',
    ' ',
    '203.0.113.0/24',
    '2001:db8::/32',
  )
  const property = fc.asyncProperty(fc.array(fc.option(fc.oneof(special, fc.string()))), async (texts) => {
    const [row] = await shared.database.query('select $1::text[] as texts', [texts])
    assert.deepEqual(row, { texts })
  })
  await fc.assert(property, { numRuns: 100 })
})

test('no amount ever becomes a float, and no time depends on the time zone of the machine', async () => {
  const [row] = await shared.database.query(`
    select 12345678901234567890.5::numeric as sum, array[0.1]::numeric[] as sums,
      '2026-01-02 03:04:05.678+00'::timestamptz as at, '2026-01-02'::date as day, '2026-01-02 03:04:05'::timestamp as local,
      '018f0000-0000-7000-8000-000000000000'::uuid as id, null::int8 as nothing, 7::int4 as small`)
  assert.deepEqual(row, {
    sum: '12345678901234567890.5',
    sums: ['0.1'],
    at: new Date('2026-01-02T03:04:05.678Z'),
    day: '2026-01-02',
    local: '2026-01-02 03:04:05',
    id: '018f0000-0000-7000-8000-000000000000',
    nothing: null,
    small: 7,
  })
})

test('the parsers of other users of the driver are unchanged', async () => {
  const client = new pg.Client({ connectionString: shared.url })
  await client.connect()
  const { rows } = await client.query('select 1::int8 as one')
  await client.end()
  assert.deepEqual(rows, [{ one: '1' }])
})

test('a prepared statement answers every call with its own values', async () => {
  for (const value of [1n, 2n, 3n]) {
    const rows = await shared.database.queryPrepared('twice', 'select $1::int8 * 2 as twice', [value])
    assert.deepEqual(rows, [{ twice: value * 2n }])
  }
})

// JIT compilation is on by default on an outside server, and makes a batch of holds up to 12 times slower.
test('JIT compilation is off on every connection, whatever the server and the URL say', async (t) => {
  await shared.database.execute(
    `do $$ begin execute format('alter database %I set jit = on', current_database()); end $$`,
  )
  const client = new pg.Client({ connectionString: shared.url })
  await client.connect()
  const { rows } = await client.query('show jit')
  await client.end()
  assert.deepEqual(rows, [{ jit: 'on' }])
  const url = new URL(shared.url)
  url.searchParams.set('options', '-c jit=on')
  for (const address of [shared.url, url.href]) {
    const database = open(t, { url: address })
    const settings = await Promise.all([database.query('show jit'), database.query('show jit')])
    assert.deepEqual(settings.flat(), [{ jit: 'off' }, { jit: 'off' }])
  }
})

test('a failed transaction leaves nothing behind, and its connection stays usable', async (t) => {
  const database = open(t, { poolMax: 1 })
  const backend = await backendOf(database)
  const failing = database.transaction(async (transaction) => {
    await transaction.query("insert into notes values (1, 'lost')")
    throw new Error('changed my mind')
  })
  await assert.rejects(failing, { message: 'changed my mind' })
  assert.deepEqual(await database.query('select id from notes where id = 1'), [])
  assert.equal(await backendOf(database), backend)
})

// The server answers such a commit with ROLLBACK and no error. Taken for a success, a write of money would be lost.
test('a commit that the server turned into a rollback is a failure', async () => {
  const swallowing = shared.database.transaction(async (transaction) => {
    await transaction.query("insert into notes values (2, 'gone')")
    await transaction.query('select 1 / 0').catch(() => {})
  })
  await assert.rejects(swallowing, { message: /^The transaction was rolled back/ })
  assert.deepEqual(await shared.database.query('select id from notes where id = 2'), [])
})

test('a commit that a deferred constraint refuses is an ordinary error', async () => {
  const conflicting = shared.database.transaction(async (transaction) => {
    await transaction.query("insert into notes values (3, 'same'), (4, 'same')")
  })
  const error = await rejection(conflicting)
  assert.equal((error as pg.DatabaseError).code, '23505')
  assert.equal(isConnectionLost(error), false)
})

test('an ordinary error leaves its connection in use', async (t) => {
  const database = open(t, { poolMax: 1 })
  const backend = await backendOf(database)
  for (const text of ['select 1 / 0', 'select nonsense', "select 'x'::int"]) {
    assert.equal(isConnectionLost(await rejection(database.query(text))), false)
  }
  assert.equal(await backendOf(database), backend)
})

test('a value that cannot be sent does not spoil a prepared statement', async (t) => {
  const database = open(t, { poolMax: 1 })
  const circular: Record<string, unknown> = {}
  circular.self = circular
  await assert.rejects(database.queryPrepared('echo', 'select $1::text as echo', [circular]), { name: 'TypeError' })
  assert.deepEqual(await database.queryPrepared('echo', 'select $1::text as echo', ['x']), [{ echo: 'x' }])
})

test('a statement that takes too long is given up, and certainly not carried out', async (t) => {
  const database = open(t, { statementMaxMs: 500 })
  const error = await rejection(database.query('select pg_sleep(60)'))
  assert.equal((error as pg.DatabaseError).code, '57014')
  assert.equal(isConnectionLost(error), false)
  const slow = database.transaction((transaction) => transaction.query('select pg_sleep(1)'), {
    statementMaxMs: 10_000,
  })
  assert.equal((await slow).length, 1)
})

test('a server that hangs up in the middle of a statement leaves its outcome unknown', async (t) => {
  const database = open(t, { poolMax: 1 })
  const error = await rejection(database.query('select pg_terminate_backend(pg_backend_pid())'))
  assert.equal(isConnectionLost(error), true)
  const inTransaction = database.transaction(async (transaction) => {
    await transaction.query("insert into notes values (5, 'cut')")
    await transaction.query('select pg_terminate_backend(pg_backend_pid())')
  })
  assert.equal(isConnectionLost(await rejection(inTransaction)), true)
  assert.deepEqual(await database.query('select id from notes where id = 5'), [])
})

test('a connection that breaks while idle is replaced', async (t) => {
  const database = open(t, { poolMax: 1 })
  const backend = await backendOf(database)
  await shared.database.query('select pg_terminate_backend($1)', [backend])
  // A statement that is sent before the pool has noticed fails with the connection.
  await until(async () => (await backendOf(database).catch(() => backend)) !== backend)
})

test('a connection that breaks between two statements of a transaction fails it', async (t) => {
  const database = open(t, { poolMax: 1 })
  const broken = database.transaction(async (transaction) => {
    const [row] = await transaction.query<{ pid: number }>('select pg_backend_pid() as pid')
    await shared.database.query('select pg_terminate_backend($1, 5000)', [row!.pid])
    await transaction.query("insert into notes values (6, 'never')")
  })
  assert.equal(isConnectionLost(await rejection(broken)), true)
})

test('a server that stopped answering is not waited for', async (t) => {
  const silent = createServer(() => {}).listen(0, '127.0.0.1')
  atEnd(t, () => silent.close())
  await once(silent, 'listening')
  const { port } = silent.address() as { port: number }
  const database = open(t, { url: `postgres://penny@127.0.0.1:${port}/penny`, connectMaxMs: 50 })
  assert.equal(isConnectionLost(await rejection(database.query('select 1'))), true)
})

test('a server that falls silent in the middle of a statement leaves its outcome unknown', async (t) => {
  const database = open(t, { poolMax: 1, statementMaxMs: 1_000 })
  const backend = await backendOf(database)
  process.kill(backend, 'SIGSTOP')
  atEnd(t, () => process.kill(backend, 'SIGCONT'))
  assert.equal(isConnectionLost(await rejection(database.query('select 1'))), true)
  assert.notEqual(await backendOf(database), backend)
})

test('a server that is not there is a lost connection, over the network and over a socket', async (t) => {
  for (const url of ['postgres://penny@127.0.0.1:1/penny', 'postgres://penny@localhost/penny?host=%2Fnowhere']) {
    assert.equal(isConnectionLost(await rejection(open(t, { url }).query('select 1'))), true, url)
  }
  const wrongName = `${shared.url.replace(/\/test_\w+/, '/no_such_database')}`
  assert.equal(isConnectionLost(await rejection(open(t, { url: wrongName }).query('select 1'))), false)
})

test('calls beyond the queue’s limit are refused immediately as overload', async (t) => {
  const database = open(t, { poolMax: 1, waitingMax: 2 })
  const lock = Promise.withResolvers<void>()
  const busy = database.transaction(() => lock.promise)
  const waiting = [database.query('select 1 as one'), database.query('select 1 as one')]
  // Certainly not executed, and worth a retry.
  const isRefusal = (error: unknown) => !isConnectionLost(error) && isTransient(error)
  await assert.rejects(database.query('select 1'), isRefusal)
  await assert.rejects(database.query('select 1'), { code: 'overloaded', retryAfterMs: 1_000 })
  lock.resolve()
  await busy
  assert.deepEqual(await Promise.all(waiting), [[{ one: 1 }], [{ one: 1 }]])
})

test('close waits for running queries and can be called twice', async () => {
  const database = openDatabase({ url: shared.url, poolMax: 1, applicationName: 'test' })
  const underWay = database.query('select pg_sleep(0.05)::text as slept')
  await Promise.all([database.close(), database.close()])
  assert.deepEqual(await underWay, [{ slept: '' }])
})

test('closing does not wait for ever for work that hangs', async () => {
  const database = openDatabase({ url: shared.url, poolMax: 1, applicationName: 'hanging', closeMaxMs: 20 })
  const hanging = rejection(database.query('select pg_sleep(60)'))
  await until(async () => (await activityOf('hanging')).length > 0)
  await database.close()
  assert.equal(isConnectionLost(await hanging), true)
})

test('close does not wait for a connection that is still opening, and nothing runs on it', async () => {
  const database = openDatabase({ url: shared.url, poolMax: 1, applicationName: 'late', closeMaxMs: 0 })
  const late = rejection(database.query('select pg_sleep(60)'))
  await database.close()
  assert.equal(isConnectionLost(await late), true)
  await until(async () => (await activityOf('late')).length === 0)
})

async function activityOf(applicationName: string): Promise<readonly unknown[]> {
  const text = "select 1 from pg_stat_activity where application_name = $1 and query like '%pg_sleep%'"
  return shared.database.query(text, [applicationName])
}

function open(t: TestContext, options: Partial<DatabaseOptions>): Database {
  const database = openDatabase({ url: shared.url, poolMax: 2, applicationName: 'test', ...options })
  atEnd(t, () => database.close())
  return database
}

async function backendOf(database: Database): Promise<number> {
  const [row] = await database.query<{ pid: number }>('select pg_backend_pid() as pid')
  return row!.pid
}

async function rejection(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => assert.fail('it should have failed'),
    (error: unknown) => error,
  )
}

test('of several hosts the one that accepts writes is used, and an error names each host and its reason', async (t) => {
  // Nothing listens there. A port that was just closed may be given to another process.
  const port = 1
  const own = await testDatabase()
  atEnd(t, () => own.drop())
  const { username, pathname, searchParams } = new URL(own.url)
  const socket = encodeURIComponent(searchParams.get('host')!)
  const url = `postgresql://${username}@127.0.0.1:${port},${socket}${pathname}?target_session_attrs=read-write`
  const database = openDatabase({ url, poolMax: 2, applicationName: 'test' })
  atEnd(t, () => database.close())
  await database.execute('create table notes (id int)')
  await Promise.all([1, 2, 3].map((id) => database.query('insert into notes values ($1)', [id])))

  // The server becomes read-only, first for a connection that is open.
  await database.execute('set default_transaction_read_only = on')
  const refused = await Promise.allSettled([1, 2].map(() => database.query('insert into notes values (4)')))
  const [error] = refused.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []))
  assert.equal((error as pg.DatabaseError).code, '25006')
  assert.ok(isConnectionLost(error))
  await database.query('insert into notes values (5)')

  await own.database.execute(`alter database ${pathname.slice(1)} set default_transaction_read_only = on`)
  await own.database.query(
    `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`,
  )
  const isNamed = (problem: unknown) => {
    assert.match(
      String(problem),
      new RegExp(`no server accepts writes: 127.0.0.1:${port}: .*ECONNREFUSED.*; /.+: it is read-only`),
    )
    return isConnectionLost(problem)
  }
  await assert.rejects(
    until(() =>
      database.query('select').then(
        () => false,
        (lost) => {
          if (String(lost).includes('accepts writes')) throw lost
          return false
        },
      ),
    ),
    isNamed,
  )
  await assert.rejects(connectClient(url, {}), isNamed)
  await own.database.execute(
    `set default_transaction_read_only = off; alter database ${pathname.slice(1)} reset default_transaction_read_only`,
  )
  await database.query('insert into notes values (6)')
})
