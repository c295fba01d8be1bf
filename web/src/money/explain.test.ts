import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { cost } from '../../../src/money/price.ts'
import { format, parse } from '../../../src/money/usdc.ts'
import { type Chargeable, explainCharge } from './explain.ts'

const price = fc.bigInt({ min: 1n, max: 50_000_000n }).map((units) => format(units))
const tokens = fc.nat(200_000)

const counted = fc.record({
  input: tokens,
  cached: tokens,
  output: tokens,
  reasoning: tokens,
  searches: fc.nat(3),
  fetches: fc.nat(3),
  inputPrice: price,
  outputPrice: price,
})

test('the lines of an explanation sum to what was charged, whatever was used', () => {
  fc.assert(
    fc.property(counted, (used) => {
      const request = charged(used)
      const explanation = explainCharge(request)
      const lines = explanation.lines.reduce((sum, line) => sum + line.amount, 0n)
      assert.equal(lines + explanation.rounding, BigInt(request.charged_atomic) * 1_000_000n)
      assert.ok(explanation.rounding >= 0n && explanation.rounding < 1_000_000n)
      assert.ok(explanation.agrees)
    }),
  )
})

test('a charge that is off by one atomic unit is seen', () => {
  const request = charged({
    input: 12,
    cached: 0,
    output: 42,
    reasoning: 0,
    searches: 0,
    fetches: 0,
    inputPrice: '1',
    outputPrice: '5',
  })
  assert.equal(request.charged_atomic, '222')
  assert.equal(explainCharge({ ...request, charged_atomic: '223' }).agrees, false)
})

test('what goes beyond the hold is ours, and the explanation says so', () => {
  const request = charged({
    input: 12,
    cached: 0,
    output: 42,
    reasoning: 0,
    searches: 0,
    fetches: 0,
    inputPrice: '1',
    outputPrice: '5',
  })
  const explanation = explainCharge({ ...request, held_atomic: '200', charged_atomic: '200' })
  assert.equal(explanation.borneByUs, 22n)
  assert.ok(explanation.agrees)
})

test('a request that was not charged has no lines', () => {
  const request = charged({
    input: 12,
    cached: 0,
    output: 0,
    reasoning: 0,
    searches: 0,
    fetches: 0,
    inputPrice: '1',
    outputPrice: '5',
  })
  const explanation = explainCharge({ ...request, usage: null, charged_atomic: '0' })
  assert.deepEqual(explanation.lines, [])
  assert.ok(explanation.agrees)
})

type Used = typeof counted extends fc.Arbitrary<infer Value> ? Value : never

/** A request as the ledger would have it: charged by the service's own function. */
function charged(used: Used): Chargeable {
  const all = cost([
    { units: used.input + used.cached, perMillion: parse(used.inputPrice) },
    { units: used.output + used.reasoning, perMillion: parse(used.outputPrice) },
    { units: used.searches, perMillion: 8_750_000_000n },
  ])
  return {
    usage: {
      prompt_tokens: used.input + used.cached,
      completion_tokens: used.output + used.reasoning,
      reasoning_tokens: used.reasoning,
      cached_tokens: used.cached,
    },
    cost: { search_calls: used.searches, fetch_calls: used.fetches },
    price: { input_per_million: used.inputPrice, output_per_million: used.outputPrice, search_per_call: '0.00875' },
    charged_atomic: all.toString(),
    held_atomic: (all * 2n).toString(),
    extended_atomic: '0',
  }
}
