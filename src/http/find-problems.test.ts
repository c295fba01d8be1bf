import assert from 'node:assert/strict'
import { appendFile, cp, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { atEnd } from '../../test/support/at-end.ts'
import { testDatabase } from '../../test/support/postgres.ts'
import { migrate } from '../db/migrate.ts'
import { findProblems } from './find-problems.ts'

const migrations = fileURLToPath(new URL('../../migrations', import.meta.url))

test('a node stays ready after its successor has migrated the database, also when only a function changed', async (t) => {
  const { database, drop } = await testDatabase()
  atEnd(t, drop)
  const successor = await mkdtemp(join(tmpdir(), 'penny-migrations-'))
  atEnd(t, () => rm(successor, { recursive: true }))
  await cp(migrations, successor, { recursive: true })
  await appendFile(join(successor, 'functions', 'place_holds.sql'), '-- changed\n')
  assert.deepEqual(await findProblems(database, successor), { migrations: 'not applied: 1 function' })
  await migrate(database, successor)
  assert.deepEqual(await findProblems(database, migrations), {})
})
