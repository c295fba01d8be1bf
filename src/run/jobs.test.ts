import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { atEnd } from '../../test/support/at-end.ts'
import { testDatabase } from '../../test/support/postgres.ts'
import { until } from '../../test/support/until.ts'
import { readConfig } from '../config/config.ts'
import { createServiceMetrics } from '../observe/service-metrics.ts'
import { startAudit } from './jobs.ts'

test('a stop does not wait for an audit that waits for the database', async (t) => {
  const { database, drop } = await testDatabase()
  atEnd(t, drop)
  const stack = new AsyncDisposableStack()
  const config = readConfig({ FULL_AUDIT_MS: '10' })
  await database.transaction(async (connection) => {
    await connection.query('lock table accounts in access exclusive mode')
    const log = { error() {}, warn() {} } as never
    startAudit({ config, log, stack, onProgress() {}, signal: undefined }, database, createServiceMetrics())
    await until(async () => {
      const [waiting] = await database.query<{ count: number }>(
        `select count(*)::int as count from pg_locks where relation = 'accounts'::regclass and not granted`,
      )
      return waiting!.count > 0
    })
    const stopped = stack.disposeAsync().then(() => true)
    assert.ok(await Promise.race([stopped, pause(60_000, false, { ref: false })]))
  })
})
