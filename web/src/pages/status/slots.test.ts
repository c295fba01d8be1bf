import assert from 'node:assert/strict'
import { test } from 'node:test'
import { share, slotsOf } from './slots.ts'

const at = (minutes: number) => new Date(minutes * 60_000).toISOString()

test('the strip has a day of steps, the newest last, and gaps where the service did not run', () => {
  const history = [
    { start: at(0), ok: true },
    { start: at(24 * 60), ok: false },
    { start: at(24 * 60 + 10), ok: true },
  ]
  const slots = slotsOf(history, ({ ok }) => (ok ? 'working' : 'failing'), (24 * 60 + 12) * 60_000)
  assert.equal(slots.length, 288)
  assert.deepEqual(slots.slice(-4), ['gap', 'failing', 'gap', 'working'])
  assert.deepEqual(new Set(slots.slice(0, -3)), new Set(['gap']))
})

test('one bad step in a day is not 100 %, and an unused service has no percentage', () => {
  assert.equal(share([...Array.from({ length: 999 }, () => 'working' as const), 'failing']), '99.9 %')
  assert.equal(share(['working', 'gap', 'off', 'unused']), '100 %')
  assert.equal(share(['gap', 'unused']), 'no data')
})
