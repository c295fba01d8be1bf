import assert from 'node:assert/strict'
import { test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { testDatabase } from '../../test/support/postgres.ts'
import { temporaryFolder } from '../../test/support/signing.ts'
import { readConfig } from '../config/config.ts'
import { migrationsFolder } from '../db/migrate.ts'
import { checkDatabase } from './ledger.ts'

// PostgreSQL accepts 100 connections by default. A machine with many cores needs more, but only under load.
test('the doctor warns about a PostgreSQL that accepts fewer connections than the web processes may open', async (t) => {
  const { url, drop } = await testDatabase()
  atEnd(t, drop)
  const DATA_DIR = temporaryFolder(t)
  const examine = async (WEB_PROCESSES: string) => {
    const config = readConfig({ DATABASE_URL: url, DATA_DIR, WEB_PROCESSES })
    return (await checkDatabase(config, migrationsFolder)).find(({ check }) => check === 'connections')!
  }
  assert.equal((await examine('1')).state, 'ok')
  const { state, detail, remedy } = await examine('64')
  assert.equal(state, 'warning')
  assert.match(detail, /accepts \d+ connections; this machine opens up to 1492 \(WEB_PROCESSES is 64\)/)
  assert.match(remedy!, /max_connections/)
})
