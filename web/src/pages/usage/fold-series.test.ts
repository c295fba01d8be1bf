import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { colouredGroups, foldSeries, otherColour } from './fold-series.ts'

type Point = { readonly spend: number; readonly requests: number }
const spend = (point: Point) => point.spend
const requests = (point: Point) => point.requests
const group = (name: string, points: readonly Point[]) => ({ group: name, label: name, points })
const sum = (values: readonly (number | null)[]) => values.reduce<number>((total, value) => total + (value ?? 0), 0)

const point = fc.record({ spend: fc.nat(1_000_000), requests: fc.nat(1_000) })
const anyGroups = fc
  .array(fc.array(point, { minLength: 3, maxLength: 3 }), { maxLength: 12 })
  .map((all) => all.map((points, at) => group(`g${at}`, points)))

test('a chart of many groups has at most six parts, and its sum is the whole', () => {
  fc.assert(
    fc.property(anyGroups, (groups) => {
      const coloured = colouredGroups(groups, [spend, requests])
      for (const measure of [spend, requests]) {
        const series = foldSeries(groups, measure, coloured)
        assert.ok(series.length <= 6)
        assert.equal(
          sum(series.map(({ values }) => sum(values))),
          sum(groups.flatMap((one) => one.points.map(measure))),
        )
      }
    }),
  )
})

test('a model has the same colour in every chart of a page, another than every other, and grey is only "Other"', () => {
  fc.assert(
    fc.property(anyGroups, (groups) => {
      const coloured = colouredGroups(groups, [spend, requests])
      const colours = new Map<string, string>()
      for (const { id, colour } of [spend, requests].flatMap((measure) => foldSeries(groups, measure, coloured))) {
        assert.equal(colours.get(id) ?? colour, colour, id)
        assert.equal(colour === otherColour, id === 'other')
        colours.set(id, colour)
      }
      assert.equal(new Set(colours.values()).size, colours.size)
    }),
  )
})

test('a model that is large in only one chart has a colour, and one that is small everywhere is "Other"', () => {
  const groups = [
    ...['a', 'b', 'c', 'd'].map((name) => group(name, [{ spend: 200, requests: 1 }])),
    group('dear and rare', [{ spend: 20, requests: 1 }]),
    group('free and often', [{ spend: 0, requests: 90 }]),
  ]
  const coloured = colouredGroups(groups, [spend, requests])
  assert.deepEqual(new Set(coloured), new Set(['free and often', 'a', 'b', 'c', 'd']))
  assert.deepEqual(
    new Set(foldSeries(groups, spend, coloured).map(({ id }) => id)),
    new Set(['a', 'b', 'c', 'd', 'other']),
  )
})

// The colours went to the largest first: with another range, or on another page, a model had another one.
test('a model has the same colour and place in every range, whatever other models were used', () => {
  const order = ['astra', 'terra', 'luna', 'sol']
  const colourOf = (used: readonly string[], name: string) => {
    const groups = used.map((one, at) => group(one, [{ spend: 100 + at, requests: 1 }]))
    return foldSeries(groups, spend, colouredGroups(groups, [spend], order)).find(({ id }) => id === name)?.colour
  }
  for (const name of order) assert.equal(colourOf([...order].reverse(), name), colourOf([name], name), name)
  const groups = ['terra', 'astra'].map((name) => group(name, [{ spend: 1, requests: 1 }]))
  const drawn = foldSeries(groups, spend, colouredGroups(groups, [spend], order)).map(({ id }) => id)
  assert.deepEqual(drawn, ['astra', 'terra'], 'in the order of the price table, not of the chart')
})
