import assert from 'node:assert/strict'
import { before, test } from 'node:test'
import { testDatabase } from '../../test/support/postgres.ts'
import { type LedgerNumbers, readLedgerNumbers } from '../ledger/ledger-numbers.ts'
import { type OperatorHealth, readOperatorHealth } from '../ledger/operator-health.ts'
import { findAttention } from './operator-attention.ts'

let numbers: LedgerNumbers
let health: OperatorHealth
before(async () => {
  const ledger = await testDatabase()
  numbers = { ...(await readLedgerNumbers(ledger.database)), cursors: [{ name: 'deposits', block: 1, seconds: 600 }] }
  health = await readOperatorHealth(ledger.database)
  await ledger.drop()
})

test('a chain without new blocks needs attention, but not in the sandbox, whose chain stands still when idle', () => {
  const codes = (isSandbox: boolean) =>
    findAttention({ health, numbers, providers: [], nowMs: 0, isSandbox }).filter(({ code }) => code === 'chain_behind')
      .length
  assert.deepEqual([codes(false), codes(true)], [1, 0])
})

// The page said that nothing needs attention, seconds after the only model server had died.
test('a provider whose last answer failed needs attention until an answer succeeds', () => {
  const nowMs = Date.parse('2026-01-01T00:00:05Z')
  const failure = { code: 'upstream_error', message: 'connect ECONNREFUSED', agoMs: 5_000 }
  const seen = (state: 'closed' | 'open', isLatest: boolean) =>
    findAttention({
      health,
      numbers,
      providers: [{ provider: 'engine', state, lastFailure: { ...failure, isLatest } }],
      nowMs,
      isSandbox: true,
    })
      .filter(({ code }) => code === 'provider_failing')
      .map(({ level, detail, since }) => [level, detail, since])
  assert.deepEqual(seen('closed', true), [['warning', failure.message, '2026-01-01T00:00:00.000Z']])
  assert.deepEqual(seen('open', true), [['error', failure.message, '2026-01-01T00:00:00.000Z']])
  assert.deepEqual(seen('closed', false), [])
})
