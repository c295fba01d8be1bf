import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Health, HealthHistory } from './health-history.ts'

const good: Health = { isReady: true, model: 'working', search: 'unused', chain: 'working', databaseMs: 2 }
const minute = 60_000

test('an outage of one minute is seen in the five minutes around it', () => {
  const history = new HealthHistory()
  history.record(good, 0)
  history.record({ ...good, isReady: false, model: 'failing', databaseMs: undefined }, minute)
  history.record({ ...good, search: 'working', databaseMs: 9 }, 2 * minute)
  history.record(good, 5 * minute)
  assert.deepEqual(history.slots, [
    {
      isReady: false,
      model: 'failing',
      search: 'working',
      chain: 'working',
      databaseMs: undefined,
      start: new Date(0),
    },
    { ...good, start: new Date(5 * minute) },
  ])
})

test('the history has 24 hours and no more, and no slot for the time that the service was down', () => {
  const history = new HealthHistory()
  for (let at = 0; at < 30 * 60; at += 1) history.record(good, at * minute)
  assert.equal(history.slots.length, 288)
  assert.deepEqual(history.slots[0]?.start, new Date(6 * 60 * minute))
  history.record(good, 40 * 60 * minute)
  assert.deepEqual(
    history.slots.slice(-2).map(({ start }) => start.getTime() / minute),
    [1795, 2400],
  )
})
