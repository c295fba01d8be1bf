import assert from 'node:assert/strict'
import { test } from 'node:test'
import { usualTime } from './withdrawal-time.ts'

test('how long a withdrawal takes is said with where it is known from, and not guessed where none was made', () => {
  assert.equal(
    usualTime({ median_ms: 3_400, median_of: 20 }),
    'Usually about 3 s, the median of the last 20 withdrawals.',
  )
  assert.equal(
    usualTime({ median_ms: 320, median_of: 1 }),
    'Usually about 1 s, based on the one withdrawal made so far.',
  )
  assert.match(usualTime({ median_ms: 1_140_000, median_of: 3 }), /^Usually about 19 min, /)
  assert.match(usualTime({ median_ms: null, median_of: 0 }), /can’t estimate/)
})
