import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { readUsage } from './usage.ts'

test('usage is read as the upstream reports it, details or none', () => {
  const reported = {
    input_tokens: 30,
    input_tokens_details: { cached_tokens: 16, cache_write_tokens: 3 },
    output_tokens: 120,
    output_tokens_details: { reasoning_tokens: 100, orchestration_tokens: 2 },
    total_tokens: 150,
  }
  const expected = { promptTokens: 30, cachedTokens: 16, completionTokens: 120, reasoningTokens: 100 }
  assert.deepEqual(readUsage(reported), expected)
  assert.deepEqual(
    readUsage({ input_tokens: 5, output_tokens: 0, input_tokens_details: null, output_tokens_details: {} }),
    { promptTokens: 5, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 },
  )
})

test('zero usage counts as reported, and missing usage does not', () => {
  const zeros = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 }
  assert.deepEqual(readUsage({ input_tokens: 0, output_tokens: 0 }), zeros)
  assert.equal(readUsage(undefined), undefined)
  assert.equal(readUsage(null), undefined)
})

test('implausible usage is never billed', () => {
  const absurd: readonly unknown[] = [
    'many',
    [],
    {},
    { input_tokens: 1 },
    { input_tokens: -1, output_tokens: 1 },
    { input_tokens: 1.5, output_tokens: 1 },
    { input_tokens: '1', output_tokens: 1 },
    { input_tokens: Number.POSITIVE_INFINITY, output_tokens: 1 },
    { input_tokens: Number.NaN, output_tokens: 1 },
    { input_tokens: 2e9, output_tokens: 1 },
    { input_tokens: 1, output_tokens: 1, input_tokens_details: 'none' },
    { input_tokens: 1, output_tokens: 1, input_tokens_details: { cached_tokens: 2 } },
    { input_tokens: 1, output_tokens: 1, output_tokens_details: { reasoning_tokens: 2 } },
    { input_tokens: 1, output_tokens: 1, output_tokens_details: { reasoning_tokens: -1 } },
  ]
  for (const raw of absurd) {
    const usage = readUsage(raw)
    assert.ok(usage !== undefined && 'absurd' in usage, JSON.stringify(raw))
  }
})

test('whatever is reported, tokens that come out of it are whole, positive and consistent', () => {
  const tokens = fc.oneof(fc.integer(), fc.double(), fc.string(), fc.constant(null))
  const details = fc.record({ cached_tokens: tokens, reasoning_tokens: tokens }, { requiredKeys: [] })
  const reports = fc.oneof(
    fc.anything(),
    fc.record({
      input_tokens: tokens,
      output_tokens: tokens,
      input_tokens_details: details,
      output_tokens_details: details,
    }),
  )
  fc.assert(
    fc.property(reports, (raw) => {
      const usage = readUsage(raw)
      if (usage === undefined || 'absurd' in usage) return
      for (const count of Object.values(usage)) assert.ok(Number.isInteger(count) && count >= 0 && count <= 1e9)
      assert.ok(usage.cachedTokens <= usage.promptTokens && usage.reasoningTokens <= usage.completionTokens)
    }),
    { numRuns: 1_000 },
  )
})
