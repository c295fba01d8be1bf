import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { foldSeries } from './fold-series.ts'

test('a chart of many groups has at most six parts, and its sum is the whole', () => {
  const groups = fc.array(fc.array(fc.nat(1_000_000), { minLength: 3, maxLength: 3 }), { maxLength: 12 })
  fc.assert(
    fc.property(groups, (all) => {
      const series = foldSeries(
        all.map((points, at) => ({ group: `g${at}`, label: `Group ${at}`, points })),
        (value) => value,
      )
      const sum = (values: readonly (number | null)[]) =>
        values.reduce<number>((total, value) => total + (value ?? 0), 0)
      assert.ok(series.length <= 6)
      assert.equal(sum(series.map(({ values }) => sum(values))), sum(all.map(sum)))
    }),
  )
})
