import assert from 'node:assert/strict'
import { test } from 'node:test'
import { UpstreamUse } from './upstream-use.ts'

const route = { provider: 'one', model: 'm', priority: 0, weight: 1 }
const priced = {
  ...route,
  rates: { inputPerMillion: 200_000n, cachedInputPerMillion: 200_000n, outputPerMillion: 6_000_000n },
}
const unpriced = { ...route, rates: undefined }
const reported = { input_tokens: 10, output_tokens: 5 }

function costOf(use: (upstream: UpstreamUse) => void): bigint | undefined {
  const upstream = new UpstreamUse()
  use(upstream)
  return upstream.record.cost
}

test('the rounds of a request are summed and rounded up once', () => {
  const upstream = new UpstreamUse()
  for (const provider of ['one', 'one', 'two']) upstream.attempted(provider)
  for (let round = 0; round < 3; round += 1) upstream.roundEnded(priced, { input_tokens: 1, output_tokens: 0 }, true)
  assert.deepEqual(upstream.record, { provider: 'two', attempts: 3, cost: 1n })
})

test('cached input costs what the provider charges for it', () => {
  const discounted = { ...priced, rates: { ...priced.rates, cachedInputPerMillion: 50_000n } }
  const usage = { input_tokens: 100, output_tokens: 0, input_tokens_details: { cached_tokens: 60 } }
  assert.equal(
    costOf((use) => use.roundEnded(discounted, usage, true)),
    11n,
  )
  assert.equal(
    costOf((use) => use.roundEnded(priced, usage, true)),
    20n,
  )
})

test('a request that reached no provider, or failed there before output, cost nothing', () => {
  assert.equal(
    costOf(() => {}),
    0n,
  )
  assert.equal(
    costOf((use) => use.roundEnded(priced, undefined, false)),
    0n,
  )
})

test('output without usage costs what we count, and is unknown until then', () => {
  const upstream = new UpstreamUse()
  upstream.roundEnded(priced, undefined, true)
  assert.equal(upstream.record.cost, undefined)
  upstream.counted({ promptTokens: 10, completionTokens: 5 })
  assert.equal(upstream.record.cost, 32n)
})

test('implausible usage is ignored; our own count does not replace reported usage', () => {
  const count = { promptTokens: 1_000, completionTokens: 1_000 }
  assert.equal(
    costOf((use) => use.roundEnded(priced, { input_tokens: -1, output_tokens: 5 }, true)),
    undefined,
  )
  assert.equal(
    costOf((use) => {
      use.roundEnded(priced, reported, true)
      use.counted(count)
    }),
    32n,
  )
})

test('without configured costs the cost is unknown, also when a later round has them', () => {
  assert.equal(
    costOf((use) => {
      use.roundEnded(unpriced, reported, true)
      use.roundEnded(priced, reported, true)
    }),
    undefined,
  )
})
