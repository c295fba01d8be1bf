import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { RateLimitedError, TokenBuckets } from './token-buckets.ts'

test('no interval admits more than burst and rate allow, and everything within them is admitted', () => {
  const pauses = fc.array(fc.integer({ min: 0, max: 3_000 }), { minLength: 1, maxLength: 200 })
  fc.assert(
    fc.property(
      pauses,
      fc.integer({ min: 1, max: 10 }),
      fc.integer({ min: 1, max: 5 }),
      (waits, burstMax, perSecond) => {
        let nowMs = 0
        let passed = 0
        const buckets = new TokenBuckets({ burstMax, perSecond, now: () => nowMs })
        for (const waitMs of waits) {
          nowMs += waitMs
          try {
            buckets.take('somebody')
            passed += 1
          } catch (error) {
            assert.ok(error instanceof RateLimitedError)
            // A caller that waits for the returned time is admitted.
            nowMs += error.retryAfterMs!
            buckets.take('somebody')
            passed += 1
          }
          assert.ok(passed <= burstMax + (nowMs / 1000) * perSecond + 1e-6)
        }
      },
    ),
  )
})

test('a refused client does not delay others, and a flood of names uses bounded memory', () => {
  const buckets = new TokenBuckets({ burstMax: 1, perSecond: 1, now: () => 0, bucketsMax: 100 })
  buckets.take('first')
  assert.throws(() => buckets.take('first'), RateLimitedError)
  for (let index = 0; index < 99; index += 1) buckets.take(`other ${index}`)
  assert.throws(() => buckets.take('first'), RateLimitedError)
})
