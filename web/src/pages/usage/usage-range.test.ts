import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fromWithinAccount, parseUsageRange, spanNote, usageSpan } from './usage-range.ts'

test('chosen days are whole UTC days, the last one included', () => {
  const range = parseUsageRange({ from: '2026-11-01', to: '2026-11-15' })
  assert.deepEqual(usageSpan(range, 0, '2026-11-14T00:00:00Z'), {
    from: '2026-11-01T00:00:00.000Z',
    to: '2026-11-16T00:00:00.000Z',
  })
})

test('a range that makes no sense is a week', () => {
  for (const search of [
    {},
    { range: '1y' },
    { from: '2026-11-15', to: '2026-11-01' },
    { from: 'x', to: 'y' },
    { from: '0002-11-01', to: '2026-11-01' },
  ])
    assert.equal(parseUsageRange(search), '7d')
})

test('a preset begins with the account, so that a new one sees its minutes and not a month of nothing', () => {
  const now = Date.parse('2026-11-15T12:00:30Z')
  assert.equal(usageSpan('30d', now, '2026-11-15T10:20:10Z').from, '2026-11-15T10:20:00.000Z')
  assert.equal(usageSpan('3h', now, '2026-11-01T10:20:10Z').from, '2026-11-15T09:00:00.000Z')
  assert.equal(fromWithinAccount(0, now, '2026-11-15T12:00:29Z'), '2026-11-15T11:45:00.000Z')
  assert.equal(fromWithinAccount(now - 60_000, now, undefined), '2026-11-15T11:59:00.000Z')
})

// "7 d" was selected over an axis of fifteen minutes.
test('a page says when the account is younger than the selected range', () => {
  const now = Date.parse('2026-11-15T12:00:30Z')
  const noteOf = (created: string) => spanNote('7d', usageSpan('7d', now, created).from, 'minute', now)
  assert.equal(noteOf('2026-11-15T11:44:00Z'), 'First 17 min of the account, by minute')
  assert.equal(noteOf('2026-01-01T00:00:00Z'), undefined)
  assert.equal(spanNote({ from: '2026-11-15', to: '2026-11-15' }, '2026-11-15T00:00:00Z', 'hour', now), undefined)
})
