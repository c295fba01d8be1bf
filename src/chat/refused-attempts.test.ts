import assert from 'node:assert/strict'
import { test } from 'node:test'
import { RefusedAttempts } from './refused-attempts.ts'

const attempt = { keyId: 'a', bodyHash: 1n, retryCount: 0 }

test('each refused attempt is retried once, within a minute', () => {
  let nowMs = 0
  const refused = new RefusedAttempts(() => nowMs)
  assert.equal(refused.take(attempt), false)
  refused.add(attempt)
  nowMs = 30_000
  refused.add(attempt)
  refused.add(attempt)
  nowMs = 60_000
  assert.deepEqual([refused.take(attempt), refused.take(attempt)], [true, true])
  nowMs = 90_000
  assert.equal(refused.take(attempt), false)
})

test('another key, another body and another count of retries are other attempts', () => {
  const refused = new RefusedAttempts(() => 0)
  refused.add(attempt)
  for (const other of [{ keyId: 'b' }, { bodyHash: 2n }, { retryCount: 1 }])
    assert.equal(refused.take({ ...attempt, ...other }), false)
  assert.equal(refused.take(attempt), true)
})

test('only the newest 10,000 are remembered', () => {
  const refused = new RefusedAttempts(() => 0)
  for (let bodyHash = 0n; bodyHash <= 10_000n; bodyHash += 1n) refused.add({ ...attempt, bodyHash })
  assert.equal(refused.take({ ...attempt, bodyHash: 0n }), false)
  assert.equal(refused.take({ ...attempt, bodyHash: 10_000n }), true)
})
