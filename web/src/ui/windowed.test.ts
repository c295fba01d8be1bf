import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { type Range, rangesOf } from './windowed.ts'

test('the row with the focus and its neighbours stay in the page, wherever it is scrolled to', () => {
  assert.deepEqual(rangesOf([100, 160], -1, 10_000), [[100, 160]])
  assert.deepEqual(rangesOf([100, 160], 5, 10_000), [
    [4, 7],
    [100, 160],
  ])
  assert.deepEqual(rangesOf([0, 60], 9_999, 10_000), [
    [0, 60],
    [9_998, 10_000],
  ])
  assert.deepEqual(rangesOf([100, 160], 98, 10_000), [[97, 160]])
})

test('ranges are in order, apart, inside the list, and hold the window and the focus', () => {
  const cases = fc.integer({ min: 1, max: 500 }).chain((count) =>
    fc.record({
      count: fc.constant(count),
      bounds: fc.tuple(fc.nat(count), fc.nat(count)),
      focused: fc.integer({ min: -1, max: count - 1 }),
    }),
  )
  fc.assert(
    fc.property(cases, ({ count, bounds: [one, other], focused }) => {
      const near: Range = [Math.min(one, other), Math.max(one, other)]
      const ranges = rangesOf(near, focused, count)
      const holds = (row: number) => ranges.some(([from, to]) => row >= from && row < to)
      for (let row = near[0]; row < near[1]; row += 1) assert.ok(holds(row))
      if (focused !== -1) assert.ok(holds(focused))
      const edges = ranges.flat()
      assert.deepEqual(
        edges,
        edges.toSorted((left, right) => left - right),
      )
      assert.ok(edges[0]! >= 0 && edges.at(-1)! <= count)
    }),
  )
})
