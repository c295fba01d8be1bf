import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { type TestDatabase, testDatabase } from '../../test/support/postgres.ts'
import { parseMetrics, sampleValue } from '../../test/support/prometheus.ts'
import { readLedgerNumbers } from '../ledger/ledger-numbers.ts'
import { renderMetrics } from '../observe/metric.ts'
import { createLedgerMetrics } from './ledger-metrics.ts'

let ledger: TestDatabase
before(async () => {
  ledger = await testDatabase()
})
after(() => ledger.drop())

// An age of 0 would mean that it was just checked, and penny_solvent 0 pages the operator.
test('metrics without a comparison yet are left out, so that alerts can detect their absence', async () => {
  const { metrics, show } = createLedgerMetrics()
  show(await readLedgerNumbers(ledger.database))
  const page = parseMetrics(renderMetrics(metrics))
  assert.equal(sampleValue(page, 'penny_open_requests'), 0)
  for (const name of ['penny_solvency_age_seconds', 'penny_solvent', 'penny_deposits_seen_total'])
    assert.equal(sampleValue(page, name), undefined, name)
})
