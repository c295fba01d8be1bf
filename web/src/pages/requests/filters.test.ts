import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { type Filters, matches, noFilters, parseFilters, ranges, statuses, toQuery, toSearch } from './filters.ts'

const word = fc.stringMatching(/^[a-z0-9._-]{1,20}$/)
const flag = fc.option(fc.boolean(), { nil: undefined })
const instant = fc
  .date({ min: new Date('2020-01-01'), max: new Date('2030-01-01'), noInvalidDate: true })
  .map((date) => date.toISOString())

const filters: fc.Arbitrary<Filters> = fc.record(
  {
    range: fc.oneof(
      fc.constantFrom(...ranges.map(([preset]) => preset)),
      fc
        .tuple(instant, instant)
        .filter(([from, to]) => from < to)
        .map(([from, to]) => ({ from, to })),
    ),
    status: fc.uniqueArray(fc.constantFrom(...statuses)),
    code: fc.uniqueArray(word, { maxLength: 3 }),
    model: fc.uniqueArray(word, { maxLength: 3 }),
    key: fc.uniqueArray(fc.uuid(), { maxLength: 3 }),
    search: flag,
    stream: flag,
    min: fc.constantFrom('', '1', '0.000001', '12.5'),
    find: fc.constantFrom('', 'req_0123456789abcdef', '0xabc'),
  },
  { noNullPrototype: true },
)

test('filters read back from their address as they were set: a link can be kept and sent', () => {
  fc.assert(
    fc.property(filters, (given) => {
      const address = new URLSearchParams(toSearch(given)).toString()
      assert.deepEqual(parseFilters(Object.fromEntries(new URLSearchParams(address))), given)
    }),
  )
})

test('an address that makes no sense shows everything instead of breaking the page', () => {
  const odd = { range: '9y', status: 'happy,,', key: 'x', min: '1e9', from: 'yesterday', to: 'today', search: 'maybe' }
  assert.deepEqual(parseFilters(odd), noFilters)
})

test('an address without filters stays empty', () => {
  assert.deepEqual(toSearch(noFilters), {})
})

test('a preset is relative to now, and stays the same within a minute', () => {
  const at = Date.parse('2026-11-15T12:00:30Z')
  const query = toQuery({ ...noFilters, range: '24h' }, at)
  assert.equal(query.from, '2026-11-14T12:00:00.000Z')
  assert.deepEqual(query, toQuery({ ...noFilters, range: '24h' }, at + 20_000))
})

test('a request that has just happened joins the page only when it matches every filter', () => {
  const request = {
    created_at: '2026-11-15T12:00:00.000Z',
    status: 'failed',
    model: 'gpt-5.6-terra',
    stream: true,
    key: { id: '00000000-0000-4000-8000-000000000001' },
    cost: { search_calls: 1 },
    charged_atomic: '2500',
    error: { code: 'upstream_error' },
  }
  const accepts = (changed: Partial<Filters>) =>
    matches(request, toQuery({ ...noFilters, ...changed }, Date.parse('2026-11-15T12:30:00Z')))
  assert.ok(accepts({}))
  assert.ok(
    accepts({
      status: ['failed', 'refused'],
      model: ['gpt-5.6-terra'],
      stream: true,
      search: true,
      min: '0.0025',
      range: '1h',
    }),
  )
  for (const changed of [
    { status: ['refused'] as const },
    { model: ['gpt-6-astra'] },
    { key: ['00000000-0000-4000-8000-000000000002'] },
    { stream: false },
    { search: false },
    { min: '0.002501' },
    { code: ['overloaded'] },
    { range: { from: '2026-11-15T12:00:01.000Z', to: '2026-11-15T13:00:00.000Z' } },
    { range: { from: '2026-11-15T11:00:00.000Z', to: '2026-11-15T12:00:00.000Z' } },
  ])
    assert.equal(accepts(changed), false, JSON.stringify(changed))
})
