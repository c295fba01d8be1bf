import assert from 'node:assert/strict'
import { test } from 'node:test'
import { openBench } from '../test/support/gateway.ts'

test('every table of the gateway says what it is for', async (t) => {
  const bench = await openBench(t)
  await bench.start()
  const silent = await bench.database.query<{ name: string }>(
    `select relname as name from pg_class
      where relnamespace = 'gateway'::regnamespace and relkind = 'r' and relname <> 'migrations'
        and obj_description(oid, 'pg_class') is null`,
  )
  assert.deepEqual(silent, [])
})
