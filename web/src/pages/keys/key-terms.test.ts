import assert from 'node:assert/strict'
import { test } from 'node:test'
import { checkTerms, emptyTerms, restrictionsOf, termsBody, termsChanges, termsOf } from './key-terms.ts'

const unrestricted = { allowed_models: [], max_request_cost: null, web_tools: true, allowed_ips: [] }
const now = Date.parse('2026-11-15T12:00:00Z')

test('a key needs a name, and a limit must be an amount that can exist', () => {
  assert.deepEqual(Object.keys(checkTerms(emptyTerms, now)), ['name'])
  for (const limit of ['0', '0.00', '-1', '1e3', '1.0000001', 'ten', '.5'])
    assert.ok('limit' in checkTerms({ ...emptyTerms, name: 'a', limit }, now), limit)
  assert.deepEqual(checkTerms({ ...emptyTerms, name: 'a', limit: '0.01' }, now), {})
})

test('a key without a limit has no window, and one with an expiry works through its last day', () => {
  assert.deepEqual(termsBody({ ...emptyTerms, name: ' app ', window: 'day' }, now), {
    name: 'app',
    limit: null,
    limit_window: 'lifetime',
    expires_at: null,
    ...unrestricted,
  })
  const form = {
    ...emptyTerms,
    name: 'app',
    limit: '2.50',
    window: 'month' as const,
    expiry: 'date' as const,
    date: '2026-11-15',
  }
  assert.deepEqual(checkTerms(form, now), {})
  assert.deepEqual(termsBody(form, now), {
    name: 'app',
    limit: '2.50',
    limit_window: 'month',
    expires_at: '2026-11-15T23:59:59.999Z',
    ...unrestricted,
  })
})

test('an expiry in the past is refused', () => {
  for (const date of ['2026-11-14', '', '2026-13-40'])
    assert.ok('date' in checkTerms({ ...emptyTerms, name: 'a', expiry: 'date', date }, now), date)
})

test('editing a key leaves its expiry alone unless the person chooses another: a new name revives no key', () => {
  const form = { ...termsOf({ name: 'app', limit: '2.5', limit_window: 'day', ...unrestricted }), name: 'renamed' }
  assert.deepEqual(checkTerms(form, now), {})
  assert.deepEqual(termsBody(form, now), { name: 'renamed', limit: '2.5', limit_window: 'day', ...unrestricted })
  assert.equal(termsBody({ ...form, expiry: 'none' }, now).expires_at, null)
})

test('an edit sends only what was edited: what another window has changed since stays', () => {
  const opened = termsOf({ name: 'app', limit: '5', limit_window: 'day', ...unrestricted })
  const changes = (edit: object, from = opened) => termsChanges({ ...from, ...edit }, from, now)
  assert.deepEqual(changes({}), {})
  assert.deepEqual(changes({ name: 'renamed' }), { name: 'renamed' })
  assert.deepEqual(changes({ limit: '3' }), { limit: '3' })
  assert.deepEqual(changes({ window: 'month' }), { limit_window: 'month' })
  assert.deepEqual(changes({ limit: '' }), { limit: null, limit_window: 'lifetime' })
  assert.deepEqual(changes({ expiry: 'none' }), { expires_at: null })
  assert.deepEqual(changes({ modelChoice: 'some', models: ['gpt-5.6-luna'] }), { allowed_models: ['gpt-5.6-luna'] })
  assert.deepEqual(changes({ maxCost: '0.05', webTools: false, ips: '::1' }), {
    max_request_cost: '0.05',
    web_tools: false,
    allowed_ips: ['::1'],
  })
  // A program can make a key with a window and without a limit.
  const unlimited = termsOf({ name: 'app', limit: null, limit_window: 'day', ...unrestricted })
  assert.deepEqual(changes({ name: 'renamed' }, unlimited), { name: 'renamed' })
  assert.deepEqual(changes({ limit: '5' }, unlimited), { limit: '5' })
  assert.deepEqual(changes({ limit: '5', window: 'lifetime' }, unlimited), { limit: '5', limit_window: 'lifetime' })
})

test('restrictions survive the form, and a list is read however it is typed', () => {
  const restricted = {
    allowed_models: ['gpt-5.6-luna'],
    max_request_cost: '0.05',
    web_tools: false,
    allowed_ips: ['203.0.113.0/24', '2001:db8::/32'],
  }
  const form = termsOf({ name: 'app', limit: null, limit_window: 'lifetime', ...restricted })
  assert.deepEqual(termsBody(form, now), { name: 'app', limit: null, limit_window: 'lifetime', ...restricted })
  const typed = { ...form, ips: ' 203.0.113.0/24,2001:db8::/32\n' }
  assert.deepEqual(termsBody(typed, now).allowed_ips, restricted.allowed_ips)
  assert.deepEqual(Object.keys(checkTerms({ ...form, models: [], maxCost: '0' }, now)), ['maxCost', 'models'])
  assert.deepEqual(restrictionsOf(restricted), ['gpt-5.6-luna', 'max $0.05 per request', 'no web tools', '2 IP ranges'])
  assert.deepEqual(restrictionsOf(unrestricted), [])
})
