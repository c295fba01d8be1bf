import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { fromAtomic } from '../money/usdc.ts'
import { quote } from './quote.ts'
import { Tab } from './tab.ts'

const searchPrice = 8_750n
const price = fc.bigInt({ min: 1n, max: 30_000_000n })
const opened = fc
  .record({
    inputPerMillion: price,
    outputPerMillion: price,
    inputTokensMax: fc.nat(50_000),
    maxTokens: fc.integer({ min: 1, max: 64_000 }),
    share: fc.double({ min: 0, max: 1, noNaN: true }),
    searches: fc.nat(3),
  })
  .map(({ inputTokensMax, maxTokens, share, searches, ...prices }) => {
    const model = { id: 'm', upstreamModel: 'm', contextLength: 400_000, maxOutputTokens: 64_000, ...prices }
    const tab = new Tab(model, quote(model, inputTokensMax, maxTokens), searchPrice, { texts: [], itemCount: 0 })
    tab.finishRound(usage(Math.floor(inputTokensMax * share), Math.floor(maxTokens * share)))
    for (let search = 0; search < searches; search += 1) {
      tab.extendTo(tab.extensionFor({ searches: 1, inputTokens: 0, outputTokens: 0 }) || tab.extended)
      tab.addSearch()
    }
    return tab
  })

const usage = (promptTokens: number, completionTokens: number) => ({
  promptTokens,
  completionTokens,
  reasoningTokens: 0,
  cachedTokens: 0,
  source: 'upstream' as const,
})

const costAfter = (tab: Tab, inputTokens: number, outputTokens: number) =>
  tab.costOf(tab.sum(usage(inputTokens, outputTokens)))

test('a round that writes all it may stays within the limit, and within the tokens that were asked for', () => {
  fc.assert(
    fc.property(opened, fc.nat(50_000), (tab, inputTokens) => {
      const affordable = tab.affordableOutput(inputTokens)
      assert.ok(affordable <= tab.tokensLeft)
      if (affordable > 0) assert.ok(costAfter(tab, inputTokens, affordable) <= tab.limit)
      // Nothing is kept back either, but for what rounding takes.
      if (affordable < tab.tokensLeft) assert.ok(costAfter(tab, inputTokens, affordable + 1) > tab.limit - 1n)
    }),
  )
})

test('results that are cut to what can be read leave room for what shall be written', () => {
  fc.assert(
    fc.property(opened, fc.nat(50_000), fc.nat(5_000), (tab, inputTokens, outputTokens) => {
      const more = tab.affordableInput(inputTokens, outputTokens)
      if (more > 0) assert.ok(costAfter(tab, inputTokens + more, outputTokens) <= tab.limit)
    }),
  )
})

test('an extension is what a step needs at its dearest, to the unit, and nothing when it is held already', () => {
  fc.assert(
    fc.property(opened, fc.nat(3), fc.nat(50_000), fc.nat(5_000), (tab, searches, inputTokens, outputTokens) => {
      const before = tab.limit
      const total = tab.extensionFor({ searches, inputTokens, outputTokens })
      if (total > 0n) tab.extendTo(total)
      for (let search = 0; search < searches; search += 1) tab.addSearch()
      const needed = costAfter(tab, inputTokens, outputTokens)
      assert.equal(tab.limit, needed > before ? needed : before)
      assert.equal(tab.extensionFor({ searches: 0, inputTokens, outputTokens }), fromAtomic(0n))
    }),
  )
})
