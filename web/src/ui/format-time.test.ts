import assert from 'node:assert/strict'
import { test } from 'node:test'
import { formatMoment } from './format-time.ts'

test('a time of another year says its year, by the reader’s calendar', () => {
  const now = new Date(2026, 0, 1, 0, 0, 1)
  assert.equal(formatMoment(new Date(2026, 0, 1, 0, 0, 0), now), '1 Jan, 00:00:00')
  assert.equal(formatMoment(new Date(2025, 11, 31, 23, 59, 59), now), '31 Dec 2025, 23:59:59')
})
