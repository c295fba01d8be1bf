import assert from 'node:assert/strict'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { testDatabase } from '../../test/support/postgres.ts'
import { type Database, openDatabase } from './database.ts'
import { migrate, pendingMigrations } from './migrate.ts'

const two = {
  '0001_notes.sql': 'create table notes (id bigint); create table more (id bigint);',
  '0002_body.sql': 'alter table notes add body text',
}

test('migrations are applied in their order, once', async (t) => {
  const { database, folder } = await fixture(t, two)
  assert.deepEqual(await pendingMigrations(database, folder), ['0001_notes', '0002_body'])
  const lines: string[] = []
  assert.deepEqual(await migrate(database, folder, (line) => lines.push(line)), {
    applied: ['0001_notes', '0002_body'],
  })
  assert.deepEqual(lines, ['Applying 2 migrations.'])
  assert.deepEqual(await migrate(database, folder), { applied: [] })
  assert.deepEqual(await pendingMigrations(database, folder), [])
  await database.query('select id, body from notes')
})

test('two nodes that migrate concurrently apply each migration once', async (t) => {
  const { database, folder, url } = await fixture(t, two)
  const other = openDatabase({ url, poolMax: 2, applicationName: 'other node' })
  atEnd(t, () => other.close())
  const results = await Promise.all([database, other, database, other].map((node) => migrate(node, folder)))
  assert.deepEqual(results.flatMap(({ applied }) => applied).sort(), ['0001_notes', '0002_body'])
})

test('a migration that fails leaves nothing of itself, and names itself', async (t) => {
  const { database, folder } = await fixture(t, {
    ...two,
    '0003_broken.sql': 'create table third (id int); select 1 / 0;',
  })
  await assert.rejects(migrate(database, folder), {
    name: 'MigrationFailedError',
    message: /^Migration 0003_broken failed and was rolled back: .*division by zero/,
  })
  assert.deepEqual(await database.query("select to_regclass('third') as third"), [{ third: null }])
  assert.deepEqual(await pendingMigrations(database, folder), ['0003_broken'])
})

test('an edited migration is refused', async (t) => {
  const { database, folder } = await fixture(t, two)
  await migrate(database, folder)
  await writeFile(join(folder, '0001_notes.sql'), 'create table notes (id int)')
  const refusal = {
    message: /^Migration 0001_notes was changed after it was applied/,
  }
  await assert.rejects(migrate(database, folder), refusal)
  await assert.rejects(pendingMigrations(database, folder), refusal)
})

test('a database that is newer than the code is refused', async (t) => {
  const { database, folder } = await fixture(t, two)
  await migrate(database, folder)
  await rm(join(folder, '0002_body.sql'))
  await assert.rejects(migrate(database, folder), {
    name: 'DatabaseNewerError',
    message: /it has migration 0002_body, the newest known here is 0001_notes/,
  })
})

test('a forgotten, doubled or misnamed migration is refused before anything is applied', async (t) => {
  for (const name of ['0003_gap.sql', '0001_again.sql', '2_short.sql', '0002_Capital.sql']) {
    const { database, folder } = await fixture(t, {
      '0001_notes.sql': 'create table notes (id bigint)',
      [name]: 'select 1',
    })
    await assert.rejects(migrate(database, folder), { message: /is not a valid name for the next migration/ }, name)
    assert.deepEqual(await database.query("select to_regclass('notes') as notes"), [{ notes: null }])
  }
})

// All traffic waits behind a migration that waits for a lock: it times out quickly and retries later.
test('a migration that cannot have its lock lets the traffic pass and tries again', async (t) => {
  const { database, folder, url } = await fixture(t, { '0001_notes.sql': two['0001_notes.sql'] })
  await migrate(database, folder)
  await writeFile(join(folder, '0002_body.sql'), two['0002_body.sql'])
  const traffic = openDatabase({ url, poolMax: 1, applicationName: 'traffic' })
  atEnd(t, () => traffic.close())
  const migrating = await traffic.transaction(async (transaction) => {
    await transaction.query('lock table notes in access exclusive mode')
    const running = migrate(database, folder)
    await untilWaitedTwice(database)
    return { running }
  })
  assert.deepEqual(await migrating.running, { applied: ['0002_body'] })
})

async function untilWaitedTwice(database: Database): Promise<void> {
  const starts = new Set<number>()
  while (starts.size < 2) {
    const waiting = await database.query<{ start: Date }>(`
      select xact_start as start from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock' and query like 'alter table notes%'`)
    for (const { start } of waiting) starts.add(start.getTime())
  }
}

async function fixture(t: TestContext, files: Readonly<Record<string, string>>) {
  const folder = await mkdtemp(join(tmpdir(), 'penny-migrations-'))
  atEnd(t, () => rm(folder, { recursive: true, force: true }))
  const { database, url, drop } = await testDatabase({ migrations: folder })
  atEnd(t, drop)
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text)
  return { database, url, folder }
}

const doubling = (by: number) =>
  `create function doubled(p_value int) returns int language sql as 'select p_value * ${by}'`

test('functions are created again when their text changes, also with other parameters', async (t) => {
  const { database, folder } = await fixture(t, two)
  await mkdir(join(folder, 'functions'))
  await writeFile(join(folder, 'functions', 'doubled.sql'), doubling(1))
  assert.deepEqual(await pendingMigrations(database, folder), ['0001_notes', '0002_body', '1 function'])
  assert.deepEqual(await migrate(database, folder), { applied: ['0001_notes', '0002_body', '1 function'] })
  assert.deepEqual(await database.query('select doubled(2) as value'), [{ value: 2 }])
  assert.deepEqual(await migrate(database, folder), { applied: [] })
  await writeFile(
    join(folder, 'functions', 'doubled.sql'),
    `create function doubled(p_value bigint, p_by int) returns bigint language sql as 'select p_value * p_by'`,
  )
  assert.deepEqual(await pendingMigrations(database, folder), ['1 function'])
  assert.deepEqual(await migrate(database, folder), { applied: ['1 function'] })
  assert.deepEqual(await database.query('select doubled(2, 3) as value'), [{ value: 6n }])
  const left = await database.query(`select from pg_proc where proname = 'doubled'`)
  assert.equal(left.length, 1, 'the one with the old parameters is gone')
})

// A node of the previous version may be restarted while the newer one serves: it must not undo its functions.
test('a function does not go back to a text that it had before', async (t) => {
  const { database, folder } = await fixture(t, two)
  await mkdir(join(folder, 'functions'))
  for (const by of [1, 2]) {
    await writeFile(join(folder, 'functions', 'doubled.sql'), doubling(by))
    await migrate(database, folder)
  }
  await writeFile(join(folder, 'functions', 'doubled.sql'), doubling(1))
  const refusal = { name: 'DatabaseNewerError', message: /a later version of the function doubled/ }
  await assert.rejects(migrate(database, folder), refusal)
  await assert.rejects(pendingMigrations(database, folder), refusal)
  assert.deepEqual(await database.query('select doubled(2) as value'), [{ value: 4 }])
})

test('the newest text of a function is the last one that was applied, also after the clock was set back', async (t) => {
  const { database, folder } = await fixture(t, two)
  await mkdir(join(folder, 'functions'))
  await writeFile(join(folder, 'functions', 'doubled.sql'), doubling(1))
  await migrate(database, folder)
  await database.query("update function_versions set applied_at = now() + interval '1 day'")
  await writeFile(join(folder, 'functions', 'doubled.sql'), doubling(2))
  await migrate(database, folder)
  assert.deepEqual(await pendingMigrations(database, folder), [])
})

test('a failing function changes none of them, and is named', async (t) => {
  const { database, folder } = await fixture(t, two)
  await mkdir(join(folder, 'functions'))
  await writeFile(join(folder, 'functions', 'doubled.sql'), doubling(2))
  await migrate(database, folder)
  await writeFile(join(folder, 'functions', 'doubled.sql'), doubling(3))
  await writeFile(join(folder, 'functions', 'tripled.sql'), 'create function tripled(')
  await assert.rejects(migrate(database, folder), {
    name: 'MigrationFailedError',
    message: /^Migration functions\/tripled failed and was rolled back: .*syntax error/,
  })
  assert.deepEqual(await database.query('select doubled(2) as value'), [{ value: 4 }])
})
