import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { parseMetrics, sampleValue } from '../../test/support/prometheus.ts'
import { Counter, Gauge, Histogram, renderMetrics } from './metric.ts'

test('any label value round-trips through Prometheus', () => {
  fc.assert(
    fc.property(fc.uniqueArray(fc.string({ unit: 'binary' }).filter((text) => !text.includes('\u0000'))), (values) => {
      const counter = new Counter({ name: 'things_total', help: 'Things: \\ and\nmore.', labels: ['kind'] })
      for (const [index, value] of values.entries()) counter.add(index + 1, value)
      const page = parseMetrics(renderMetrics([counter]))
      for (const [index, kind] of values.entries()) assert.equal(sampleValue(page, 'things_total', { kind }), index + 1)
    }),
  )
})

test('buckets of a histogram rise, hold everything that was seen, and their sum is its sum', () => {
  fc.assert(
    fc.property(fc.array(fc.double({ min: 0, max: 100, noNaN: true })), (values) => {
      const histogram = new Histogram({ name: 'took_seconds', help: 'Time.', labels: ['what'], buckets: [0.1, 1, 10] })
      for (const value of values) histogram.observe(value, 'all')
      const page = parseMetrics(renderMetrics([histogram]))
      if (values.length === 0) return
      assert.equal(sampleValue(page, 'took_seconds_count'), values.length)
      assert.equal(sampleValue(page, 'took_seconds_bucket', { le: '1' }), values.filter((value) => value <= 1).length)
      assert.equal(
        sampleValue(page, 'took_seconds_sum'),
        values.reduce((sum, value) => sum + value, 0),
      )
    }),
  )
})

test('a label that takes ever new values fills no memory: the rest is counted together', () => {
  const counter = new Counter({ name: 'surprises_total', help: 'Surprises.', labels: ['what'] })
  for (let index = 0; index < 5_000; index += 1) counter.add(1, `value ${index}`)
  const page = parseMetrics(renderMetrics([counter]))
  assert.equal(page.get('surprises_total')!.samples.length, 2_001)
  assert.equal(sampleValue(page, 'surprises_total', { what: 'other' }), 3_000)
})

test('a gauge is read on each scrape, and cleared series disappear', () => {
  let now = 1
  const read = new Gauge({ name: 'level', help: 'A level.', read: (gauge) => gauge.set((now += 1)) })
  const set = new Gauge({ name: 'state', help: 'States.', labels: ['state'] })
  set.set(7, 'open')
  assert.equal(sampleValue(parseMetrics(renderMetrics([read, set])), 'level'), 2)
  set.clear()
  const page = parseMetrics(renderMetrics([read, set]))
  assert.deepEqual([sampleValue(page, 'level'), page.get('state')!.samples.length], [3, 0])
})

// Prometheus sees no increase in a series that begins with its first event: an alert on that event would not fire.
test('a counter shows the label values that it is to have from the start', () => {
  const counter = new Counter({ name: 'lost_total', help: 'Lost.', labels: ['how'], fromStart: ['once', 'twice'] })
  counter.add(1, 'twice')
  assert.equal(counter.render(), 'lost_total{how="once"} 0\nlost_total{how="twice"} 1\n')
})
