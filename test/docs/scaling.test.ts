import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { growthTable } from '../../bench/growth-model.ts'
import { testDatabase } from '../support/postgres.ts'

const page = readFileSync(new URL('../../docs/scaling.md', import.meta.url), 'utf8')

test('the model of growth on the page is the one that is computed: node bench/growth-model.ts', () => {
  assert.ok(page.includes(growthTable()), growthTable())
})

test('the page says where every table lies on a cluster', async () => {
  const { database, drop } = await testDatabase()
  const rows = await database
    .query<{ name: string }>(
      `select relname as name from pg_class
        where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition`,
    )
    .finally(drop)
  // Those of `src/db/migrate.ts` are the coordinator's own.
  const tables = rows.map(({ name }) => name).filter((name) => !['migrations', 'function_versions'].includes(name))
  assert.ok(tables.length > 30)
  assert.deepEqual(
    tables.filter((table) => !page.includes(`\`${table}\``)),
    [],
  )
})
