import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { charge, hold, openLedger, openPayer } from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { until } from '../../test/support/until.ts'
import { readConfig } from '../config/config.ts'
import { endLease, renewLease } from '../ledger/nodes.ts'
import { noFailpoint } from '../process/failpoints.ts'
import { openObserver } from './observe.ts'
import { openHolds } from './open-holds.ts'

const ledger = ledgerSuite()

/** A node that starts now, with a data folder of its own. Its turns stand still until the test ticks. */
async function startFresh(t: TestContext, leaseMs: number) {
  t.mock.timers.enable({ apis: ['setInterval'] })
  const { database } = ledger
  const dataDir = mkdtempSync(join(tmpdir(), 'penny-node-'))
  const stack = new AsyncDisposableStack()
  atEnd(t, async () => {
    await stack.disposeAsync()
    rmSync(dataDir, { recursive: true })
  })
  const log = { error() {}, warn() {} } as never
  const config = readConfig({ DATA_DIR: dataDir, LEASE_MS: String(leaseMs) })
  const context = { config, log, stack, onProgress() {}, signal: undefined }
  const databases = { ledger: database, lease: database } as never
  const parts = { databases, priceVersion: 'test', failpoint: noFailpoint, observer: openObserver(context) }
  return openHolds(context, parts)
}

/** A node that holds a request with a checkpoint, and whose lease expired a second ago. */
async function openExpired() {
  const { database } = ledger
  const node = randomUUID()
  const holds = await openLedger(database, { node })
  const payer = await openPayer(database, 5_000n)
  const placed = await hold(holds, payer, 1_000n)
  const { requestId } = placed
  holds.checkpoint({ requestId, partition: payer.partition, promptTokens: 10, completionTokens: 10 })
  await holds.drained()
  await database.query("update nodes set lease_until = now() - interval '1 second' where id = $1", [node])
  return { node, holds, placed }
}

const isOpen = async (requestId: string) =>
  (await ledger.database.query('select from holds where id = $1', [requestId])).length === 1

test('a node that starts after an outage of the database ends no request of a node that had no time to renew its lease', async (t) => {
  const { node, holds, placed } = await openExpired()
  await startFresh(t, 60_000)
  await renewLease(ledger.database, node, 60_000)
  assert.deepEqual(await holds.end(charge(placed, 900n)), { endedNow: true, status: 'succeeded', charged: 900n })
})

test('a node that starts ends requests of a node that has stopped immediately, and of a dead one after a lease period', async (t) => {
  const [stopped, dead] = [await openExpired(), await openExpired()]
  await endLease(ledger.database, stopped.node)
  const leaseMs = 1_000
  await startFresh(t, leaseMs)
  assert.deepEqual([await isOpen(stopped.placed.requestId), await isOpen(dead.placed.requestId)], [false, true])
  await until(async () => {
    t.mock.timers.tick(leaseMs)
    return !(await isOpen(dead.placed.requestId))
  })
})
