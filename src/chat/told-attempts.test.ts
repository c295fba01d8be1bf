import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ToldAttempts } from './told-attempts.ts'

const attempt = { keyId: 'a', bodyHash: 1n, retryCount: 0 }

test('each attempt that was told to come back is followed by one retry, within a minute', () => {
  let nowMs = 0
  const told = new ToldAttempts(() => nowMs)
  assert.equal(told.take(attempt), false)
  told.add(attempt)
  nowMs = 30_000
  told.add(attempt)
  told.add(attempt)
  nowMs = 60_000
  assert.deepEqual([told.take(attempt), told.take(attempt), told.take(attempt)], [true, true, false])
})

test('another key, another body and another count of retries are other attempts', () => {
  const told = new ToldAttempts(() => 0)
  told.add(attempt)
  for (const other of [{ keyId: 'b' }, { bodyHash: 2n }, { retryCount: 1 }])
    assert.equal(told.take({ ...attempt, ...other }), false)
  assert.equal(told.take(attempt), true)
})

test('however many are told to come back, the newest are remembered and the rest take no room', () => {
  const told = new ToldAttempts(() => 0)
  for (let bodyHash = 0n; bodyHash <= 10_000n; bodyHash += 1n) told.add({ ...attempt, bodyHash })
  assert.equal(told.take({ ...attempt, bodyHash: 0n }), false)
  assert.equal(told.take({ ...attempt, bodyHash: 10_000n }), true)
  for (let equal = 0; equal < 1_001; equal += 1) told.add(attempt)
  let taken = 0
  while (told.take(attempt)) taken += 1
  assert.equal(taken, 1_000)
})
