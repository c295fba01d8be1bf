import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseUsageRange, usageSpan } from './usage-range.ts'

test('chosen days are whole UTC days, the last one included', () => {
  const range = parseUsageRange({ from: '2026-11-01', to: '2026-11-15' })
  assert.deepEqual(usageSpan(range, 0), { from: '2026-11-01T00:00:00.000Z', to: '2026-11-16T00:00:00.000Z' })
})

test('a range that makes no sense is a week', () => {
  for (const search of [{}, { range: '1y' }, { from: '2026-11-15', to: '2026-11-01' }, { from: 'x', to: 'y' }])
    assert.equal(parseUsageRange(search), '7d')
})
