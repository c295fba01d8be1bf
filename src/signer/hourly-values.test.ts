import assert from 'node:assert/strict'
import { test } from 'node:test'
import { HourlyValues } from './hourly-values.ts'

const hourMs = 3_600_000

test('an account gets no more signed in an hour than its limit, to the unit, and again in the next hour', () => {
  const values = new HourlyValues({ accountMax: 100n, totalMax: 1_000n })
  assert.equal(values.take('a', 60n, 0), true)
  assert.equal(values.take('a', 41n, 1), false)
  assert.equal(values.take('a', 40n, hourMs - 1), true)
  assert.equal(values.take('a', 1n, hourMs - 1), false)
  assert.equal(values.take('b', 100n, hourMs - 1), true)
  assert.equal(values.take('a', 100n, hourMs), true)
})

test('all accounts together stay within the total limit; refused values do not count', () => {
  const values = new HourlyValues({ accountMax: 100n, totalMax: 250n })
  assert.deepEqual(
    ['a', 'b', 'c', 'd'].map((account) => values.take(account, 100n, 0)),
    [true, true, false, false],
  )
  assert.equal(values.take('c', 50n, 0), true)
  assert.equal(values.take('d', 1n, 0), false)
})
