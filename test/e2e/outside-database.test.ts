import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { atEnd } from '../support/at-end.ts'
import { preparePenny } from '../support/penny-command.ts'
import { testDatabase } from '../support/postgres.ts'

// Commands beside a service whose database is elsewhere, given only its data folder: an answer about another database would be worse than
// none.

const penny = preparePenny()
const file = join(penny.dataDir, 'database-url')
after(() => penny.remove())

const accounts = async () =>
  (await penny.json<readonly { readonly id: string; readonly name: string }[]>(['accounts'])).map(({ id }) => id)

test('given only the data folder, a command uses the database of the service', async (t) => {
  const { url, database, drop } = await testDatabase()
  atEnd(t, drop)
  await database.execute(`do $$ begin execute format('alter database %I set jit = on', current_database()); end $$`)
  mkdirSync(penny.dataDir)
  // A file that an interrupted start left there, readable by everyone.
  writeFileSync(`${file}.new`, 'half', { mode: 0o666 })
  atEnd(t, () => penny.stop('SIGKILL'))
  await penny.start({ DATABASE_URL: url })
  assert.deepEqual([readFileSync(file, 'utf8').trim(), statSync(file).mode & 0o777], [url, 0o600])
  const rows = await database.query<{ id: string }>('select id from accounts')
  assert.deepEqual(
    await accounts(),
    rows.map(({ id }) => id),
  )
  const { stdout } = await penny.run(['doctor'])
  assert.match(stdout, /database +PostgreSQL \d+\S* responds/)
  assert.match(stdout, /jit +JIT compilation is off/)
  const backup = await penny.run(['backup', join(penny.folder, 'copy')])
  assert.match(backup.stderr, /^penny: The service uses an external database/)
  await penny.stop()
  assert.deepEqual(
    await accounts(),
    rows.map(({ id }) => id),
  )
  assert.equal(existsSync(join(penny.dataDir, 'postgres')), false, 'a database was made beside it')
})

test('what an outside database has left is gone once the service runs on its own', async () => {
  await penny.start()
  assert.equal(existsSync(file), false)
  assert.equal((await accounts()).length, 1)
  await penny.stop()
})

test('an address that does not serve or cannot be read is refused in one line, and no database is made in its place', async () => {
  rmSync(join(penny.dataDir, 'postgres'), { recursive: true })
  writeFileSync(file, 'postgresql://penny:hunter2@db.invalid/penny\n', { mode: 0o600 })
  const away = await penny.run(['accounts'])
  assert.equal(away.code, 1)
  assert.match(
    away.stderr,
    /^penny: The database URL of the last start \(.+database-url\) cannot be used: getaddrinfo \w+ db\.invalid\. Set DATABASE_URL, .+\n$/,
  )
  rmSync(file)
  mkdirSync(file)
  const unreadable = await penny.run(['accounts'])
  assert.equal(unreadable.code, 1)
  assert.match(unreadable.stderr, /^penny: .+database-url cannot be read: EISDIR.+\n$/)
  assert.equal(existsSync(join(penny.dataDir, 'postgres')), false)
})
