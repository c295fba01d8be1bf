import assert from 'node:assert/strict'
import { test } from 'node:test'
import { monthName, monthsFrom } from './months.ts'

test('the months of an account go from its first to this one, over the end of a year', () => {
  assert.deepEqual(monthsFrom('2026-11', new Date('2027-01-31T23:59:59Z')), ['2027-01', '2026-12', '2026-11'])
  assert.deepEqual(monthsFrom('2026-11', new Date('2026-11-01T00:00:00Z')), ['2026-11'])
  // A clock of the browser that is behind the service's must not make an endless list.
  assert.deepEqual(monthsFrom('2026-11', new Date('2026-10-31T00:00:00Z')), ['2026-10'])
  assert.equal(monthName('2026-11'), 'November 2026')
})
