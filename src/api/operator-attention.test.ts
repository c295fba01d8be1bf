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
    findAttention({ health, numbers, nowMs: 0, isSandbox }).filter(({ code }) => code === 'chain_behind').length
  assert.deepEqual([codes(false), codes(true)], [1, 0])
})
