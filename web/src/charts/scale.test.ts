import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { labelledBuckets, ticks } from './scale.ts'

test('an axis begins at zero, ends at or above the highest bar, and has few round marks', () => {
  fc.assert(
    fc.property(fc.double({ min: 1e-6, max: 1e12, noNaN: true }), (highest) => {
      const marks = ticks(highest)
      assert.equal(marks[0], 0)
      assert.ok(marks.at(-1)! >= highest * (1 - 1e-6))
      assert.ok(marks.length >= 2 && marks.length <= 6)
    }),
  )
  assert.deepEqual(ticks(0), [0, 1])
  assert.deepEqual(ticks(29), [0, 10, 20, 30])
})

test('a count has whole marks, each of them once', () => {
  assert.deepEqual(ticks(1, 1), [0, 1])
  assert.deepEqual(ticks(2, 1), [0, 1, 2])
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 1_000_000 }), (highest) => {
      const marks = ticks(highest, 1)
      assert.ok(marks.every(Number.isInteger) && marks.at(-1)! >= highest && marks.length <= 6, marks.join())
    }),
  )
})

test('names under an axis never touch', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 500 }), fc.integer({ min: 100, max: 1500 }), (count, width) => {
      const shown = labelledBuckets(count, width)
      const gap = shown.length < 2 ? width : ((shown[1]! - shown[0]!) * width) / count
      assert.ok(shown.length > 0 && gap >= 63.9)
    }),
  )
})
