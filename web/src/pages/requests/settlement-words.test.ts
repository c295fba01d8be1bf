import assert from 'node:assert/strict'
import { test } from 'node:test'
import { paidTogether, settlementWords } from './request-words.ts'

const nonce = `0x${'0'.repeat(64)}` as const
const payment = { number: '7', nonce, value: '0.0042', value_atomic: '4200', entries: 42 }
const settlement = {
  state: 'completed',
  payment,
  batch: '3',
  batch_position: 1,
  batch_size: 2,
  tx_hash: nonce,
  reason: null,
  changed_at: '2026-11-16T12:00:00Z',
} as const

test('a request says with how many others it was paid, and in which payment', () => {
  const at = (entries: number) =>
    paidTogether({ status: 'succeeded', settlement: { ...settlement, payment: { ...payment, entries } } })
  assert.equal(at(42), 'Paid together with 41 requests in payment 7')
  assert.equal(at(2), 'Paid together with 1 request in payment 7')
  assert.equal(at(1), 'Paid alone in payment 7')
  assert.equal(paidTogether({ status: 'succeeded', settlement: { ...settlement, payment: null } }), undefined)
})

test('a charge that no payment covers yet waits for the next one, and an open request for its end', () => {
  const unpaid = { ...settlement, state: 'unpaid', payment: null } as const
  assert.deepEqual(settlementWords({ status: 'succeeded', settlement: unpaid }), [
    'pending',
    'Waiting for the next payment',
  ])
  assert.deepEqual(settlementWords({ status: 'held', settlement: unpaid }), [
    'pending',
    'Settles after the request ends',
  ])
})

test('a payment of nothing is settled without a transaction, and says why', () => {
  const nothing = { ...settlement, payment: { ...payment, value: '0', value_atomic: '0' }, tx_hash: null }
  assert.match(settlementWords({ status: 'succeeded', settlement: nothing })[1], /add up to zero/)
  assert.equal(settlementWords({ status: 'succeeded', settlement })[1], 'Settled on chain')
})
