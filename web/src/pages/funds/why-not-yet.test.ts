import assert from 'node:assert/strict'
import { test } from 'node:test'
import { whyNotYet } from './why-not-yet.ts'

const chain = { deposit_min: '0.1', deposit_min_atomic: '100000' }
const created_at = '2026-11-15T12:00:00Z'
const soon = Date.parse(created_at) + 2_000
const late = Date.parse(created_at) + 61_000

test('a deposit says why it waits: it is too small, its turn comes later, or something is slow', () => {
  const small = { state: 'seen', amount_atomic: '99999', waits_until: null, created_at } as const
  assert.match(whyNotYet(small, chain, soon)!, /^Less than 0\.1 USDC/)
  const large = { ...small, amount_atomic: '100000' }
  assert.equal(whyNotYet(large, chain, soon), undefined)
  assert.match(whyNotYet(large, chain, late)!, /longer than usual/)
  assert.match(whyNotYet({ ...small, state: 'sweeping' }, chain, late)!, /longer than usual/)
  assert.equal(whyNotYet({ ...small, state: 'credited' }, chain, late), undefined)
  const paused = { ...large, waits_until: '2026-11-15T12:09:30Z' }
  assert.match(whyNotYet(paused, chain, soon)!, /together.* in about 10 min/)
  assert.match(whyNotYet(paused, chain, late)!, /in about 9 min/)
  assert.match(whyNotYet(paused, chain, Date.parse(paused.waits_until))!, /longer than usual/)
})
