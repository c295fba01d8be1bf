import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import fc from 'fast-check'
import { createTokenCounter } from '../inference/tokens.ts'
import { fromAtomic } from '../money/usdc.ts'
import { loadPriceList } from './price-list.ts'
import { affordableMaxTokens, boundInput, quote } from './quote.ts'

const counter = createTokenCounter()
after(() => counter.close())
const count = (texts: readonly string[]) => counter.count(texts, { account: '' })
const model = loadPriceList(undefined).models.get('gpt-6-astra')!

test('the bound of the input is never below the count, for short texts and long ones', async () => {
  const words = fc.string({ unit: 'grapheme', maxLength: 400 })
  await fc.assert(
    fc.asyncProperty(fc.array(words, { maxLength: 40 }), fc.nat(60), async (texts, repeats) => {
      const input = { texts: texts.map((text) => text.repeat(1 + repeats)), itemCount: texts.length }
      const counted = await count([input.texts.join('')])
      assert.ok((await boundInput(input, count)) >= counted + 3 * texts.length + 3)
    }),
    { numRuns: 60 },
  )
})

test('a short prompt is bounded without counting', async () => {
  const never = () => Promise.reject(new Error('counted'))
  assert.equal(await boundInput({ texts: ['What is a penny?'], itemCount: 1 }, never), 16 + 8 + 32)
})

test('the default max_tokens of the dearest model is quoted at what it can cost', () => {
  assert.equal(quote(model, 100, 8_192).amount, 205_300n)
})

test('the affordable max_tokens fits the amount, and one more does not', () => {
  fc.assert(
    fc.property(fc.nat(1_000_000), fc.nat(20_000), (amount, inputTokensMax) => {
      const tokens = affordableMaxTokens(model, inputTokensMax, fromAtomic(BigInt(amount)))
      if (tokens > 0) assert.ok(quote(model, inputTokensMax, tokens).amount <= amount)
      if (tokens < model.maxOutputTokens) assert.ok(quote(model, inputTokensMax, tokens + 1).amount > amount)
    }),
  )
})
