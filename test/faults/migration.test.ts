import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { appendFile, cp, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { type Database, openDatabase } from '../../src/db/database.ts'
import { migrate } from '../../src/db/migrate.ts'
import { setGuard, shutLedger } from '../../src/db/migration-guard.ts'
import type { Payer } from '../../src/ledger/hold-calls.ts'
import type { Holds } from '../../src/ledger/holds.ts'
import { atEnd } from '../support/at-end.ts'
import { assertBooksBalance, assertBooksClosed } from '../support/audit.ts'
import { charge, hold, openLedger, voided } from '../support/ledger.ts'
import { testDatabase } from '../support/postgres.ts'
import { until } from '../support/until.ts'

// Nodes hold and end requests on the schema before a migration while another node migrates the database, and keep serving. They call the
// ledger's functions, whose signatures have not changed since the first migration.

const migrations = fileURLToPath(new URL('../../migrations', import.meta.url))
const files = (await readdir(migrations)).filter((name) => name.endsWith('.sql')).sort()
const pollMs = 5

for (const [index, file] of files.entries()) {
  if (index === 0) continue

  test(`${file} is applied while two nodes hold and end requests, and the ledger balances`, async (t) => {
    const { database, url } = await databaseBefore(t, index)
    const traffic = await openTraffic(t, database, url)
    await traffic.untilEnded(200)
    const { applied } = await migrate(database, migrations)
    assert.equal(applied.length, files.length - index)
    await traffic.untilEnded(200)
    await traffic.stop()
    await assertBooksClosed(database)
  })

  test(`a hold and an end that wait for ${file} are made as it says they must be`, async (t) => {
    const { database, url } = await databaseBefore(t, index)
    const { holds, payer } = await openNode(t, database, url)
    const placed = await hold(holds, payer, 1_000n)
    const session = openDatabase({ url, poolMax: 1, applicationName: 'a reader that takes its time' })
    atEnd(t, () => session.close())
    // The migration waits for a reader, and the calls wait for the migration: they begin before it is applied and end after it.
    const [migrated, calls] = await session.transaction(async (reader) => {
      await reader.query('select from accounts')
      const migrating = migrate(database, migrations)
      await untilWaiting(database, 1)
      const waiting = Promise.all([holds.end(charge(placed, 300n)), hold(holds, payer, 500n)])
      await untilWaiting(database, 3)
      return [migrating, waiting] as const
    })
    await migrated
    const [end, second] = await calls
    assert.deepEqual([end.status, end.charged], ['succeeded', 300n])
    await holds.end(voided(second))
    await assertBooksBalance(database)
  })
}

test('functions are replaced while two nodes hold and end requests, and the ledger balances', async (t) => {
  const { database, url, folder } = await databaseBefore(t, files.length)
  const traffic = await openTraffic(t, database, url)
  await traffic.untilEnded(200)
  for (const name of ['place_holds', 'end_requests', 'lock_accounts']) {
    await appendFile(join(folder, 'functions', `${name}.sql`), '-- Of the next version.\n')
  }
  assert.deepEqual(await migrate(database, folder), { applied: ['3 functions'] })
  await traffic.untilEnded(200)
  await traffic.stop()
  await assertBooksClosed(database)
})

test('a migration guard left by a dead node is removed by the next start', async (t) => {
  const { database, url } = await databaseBefore(t, files.length)
  const { holds, payer } = await openNode(t, database, url)
  await database.transaction(async (connection) => {
    await shutLedger(connection)
    await setGuard(connection)
  })
  const waiting = hold(holds, payer, 500n)
  await migrate(database, migrations)
  await holds.end(voided(await waiting))
  assert.deepEqual(await database.query("select from pg_trigger where tgname = 'refuse_earlier_calls'"), [])
})

/** A database as it was before the n-th migration. */
async function databaseBefore(
  t: TestContext,
  count: number,
): Promise<{ database: Database; url: string; folder: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'penny-migrations-'))
  atEnd(t, () => rm(folder, { recursive: true, force: true }))
  await cp(migrations, folder, { recursive: true })
  for (const file of files.slice(count)) await rm(join(folder, file))
  const { database, url, drop } = await testDatabase({ migrations: folder, poolMax: 8 })
  atEnd(t, drop)
  return { database, url, folder }
}

async function openNode(t: TestContext, database: Database, url: string): Promise<{ holds: Holds; payer: Payer }> {
  const pool = openDatabase({ url, poolMax: 4, applicationName: 'node' })
  atEnd(t, () => pool.close())
  return { holds: await openLedger(pool), payer: await openOldPayer(database) }
}

/** In SQL that works on every schema since the first. */
async function openOldPayer(database: Database): Promise<Payer> {
  const accountId = randomUUID()
  await database.query("insert into accounts (partition, id, name) values (0, $1, 'test')", [accountId])
  await database.query("select credit_deposit(0::smallint, $1, $2, 1000000000, 'test')", [randomUUID(), accountId])
  const keyId = randomUUID()
  await database.query(
    "insert into api_keys (partition, id, account_id, name, hint) values (0, $1, $2, 'test', 'penny_…test')",
    [keyId, accountId],
  )
  return { partition: 0, accountId, keyId }
}

/** Two nodes, each with a few customers that send requests continuously. */
async function openTraffic(t: TestContext, database: Database, url: string) {
  const nodes = await Promise.all([openNode(t, database, url), openNode(t, database, url)])
  let stopped = false
  let ended = 0
  const work = async (holds: Holds, payer: Payer, atOnce: number) => {
    while (!stopped) {
      const placed = await hold(holds, payer, 1_000n)
      await holds.end(atOnce % 3 === 0 ? voided(placed) : charge(placed, BigInt(100 * atOnce)))
      ended += 1
    }
  }
  // Each node also uses the other's account: a migration must not make them deadlock either.
  const payers = nodes.map(({ payer }) => payer)
  const working = nodes.flatMap(({ holds }) =>
    Array.from({ length: 8 }, (_, index) => work(holds, payers[index % payers.length]!, index)),
  )
  return {
    async untilEnded(count: number): Promise<void> {
      const until = ended + count
      while (ended < until) await Promise.race([pause(pollMs), ...working])
    },
    async stop(): Promise<void> {
      stopped = true
      await Promise.all(working)
    },
  }
}

async function untilWaiting(database: Database, count: number): Promise<void> {
  await until(async () => {
    const waiting = await database.query(
      "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
    )
    return waiting.length >= count
  })
}
