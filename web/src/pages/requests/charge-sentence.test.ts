import assert from 'node:assert/strict'
import { test } from 'node:test'
import { chargeSentence, returned } from './request-words.ts'

const succeeded = {
  status: 'succeeded',
  held_atomic: '4210',
  extended_atomic: '0',
  charged_atomic: '1873',
  given_back_atomic: '0',
  ended_at: '2026-11-15T12:00:00Z',
} as const

test('held, used and returned amounts are shown to the atomic unit', () => {
  assert.equal(chargeSentence(succeeded), 'We held $0.004210, used $0.001873, returned $0.002337.')
  assert.match(
    chargeSentence({ ...succeeded, status: 'failed', charged_atomic: '0' }),
    /hold of \$0\.004210 was released/,
  )
})

// The drawer and the playground show the same number: it includes the unused part of extensions for searches.
test('of a hold that was extended for a search all that was not used is returned', () => {
  const searched = { ...succeeded, extended_atomic: '11401', charged_atomic: '5000' }
  assert.equal(returned(searched), 10_611n)
  assert.equal(chargeSentence(searched), 'We held $0.015611, used $0.005000, returned $0.010611.')
})

test('a charge that was given back later stays a charge, and the sentence says how much came back', () => {
  for (const status of ['succeeded', 'cancelled'] as const)
    assert.equal(
      chargeSentence({ ...succeeded, status, given_back_atomic: '1200' }),
      'We held $0.004210, used $0.001873, returned $0.002337. $0.001200 of the charge was refunded later.',
    )
})
