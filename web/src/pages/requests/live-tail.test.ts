import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { LedgerRequest } from '../../api/shapes.ts'
import { hear, showWaiting, tailOf } from './live-tail.ts'

const row = (id: string, status = 'held') => ({ id, status }) as LedgerRequest

test('rows that came live under one filter are gone under another, and so are those that waited', () => {
  const tail = hear(hear(tailOf(undefined, 'all'), row('a'), 'fresh'), row('b'), 'waiting')
  assert.equal(tailOf(tail, 'all'), tail)
  assert.deepEqual(tailOf(tail, 'failed'), { asked: 'failed', fresh: [], waiting: [] })
})

test('a row that waits is shown on top, once, in its latest form', () => {
  const waiting = hear(hear(tailOf(undefined, 'all'), row('a'), 'fresh'), row('b'), 'waiting')
  const shown = showWaiting(hear(waiting, row('b', 'succeeded'), 'waiting'))
  assert.deepEqual(shown.fresh, [row('b', 'succeeded'), row('a')])
  assert.deepEqual(shown.waiting, [])
})

test('while the page is not live, nothing new is added', () => {
  const tail = hear(tailOf(undefined, 'all'), row('a'), undefined)
  assert.deepEqual(tail.fresh, [])
})
