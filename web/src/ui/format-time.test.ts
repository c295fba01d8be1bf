import assert from 'node:assert/strict'
import { test } from 'node:test'
import { formatMoment, formatMs } from './format-time.ts'

test('a time of another year says its year, by the reader’s calendar', () => {
  const now = new Date(2026, 0, 1, 0, 0, 1)
  assert.equal(formatMoment(new Date(2026, 0, 1, 0, 0, 0), now), '1 Jan, 00:00:00')
  assert.equal(formatMoment(new Date(2025, 11, 31, 23, 59, 59), now), '31 Dec 2025, 23:59:59')
})

test('a latency of many hours is not read in seconds', () => {
  assert.deepEqual([980, 9_870, 61_400, 130_000, 45_456_200].map(formatMs), [
    '980 ms',
    '9.87 s',
    '61.4 s',
    '2 min',
    '12 h 38 min',
  ])
})
