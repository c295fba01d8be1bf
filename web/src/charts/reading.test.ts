import assert from 'node:assert/strict'
import { test } from 'node:test'
import { hasReading, isBlank } from './reading.ts'

test('a rate of zero is read as zero, and a rate that is not known as nothing', () => {
  const rate = [{ values: [0, null] }]
  assert.deepEqual([hasReading('lines', rate, 0), hasReading('lines', rate, 1)], [true, false])
  assert.equal(isBlank('lines', rate), false)
  assert.equal(isBlank('lines', [{ values: [null, null] }]), true)
})

test('bars without height are nothing', () => {
  assert.equal(hasReading('bars', [{ values: [0] }, { values: [null] }], 0), false)
  assert.equal(isBlank('bars', [{ values: [0, 0] }]), true)
  assert.equal(isBlank('bars', [{ values: [0, 2] }]), false)
})
