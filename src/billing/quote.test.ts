import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import fc from 'fast-check'
import { parseChatRequest } from '../inference/chat-request.ts'
import { createTokenCounter } from '../inference/tokens.ts'
import { fromAtomic } from '../money/usdc.ts'
import { inputOf, toModelRequest } from '../providers/model-request.ts'
import { loadPriceList } from './price-list.ts'
import { affordableMaxTokens, boundInput, boundQuotedInput, quote, searchMax } from './quote.ts'

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
  // Every message has its framing.
  assert.equal(await boundInput({ texts: ['a', 'b', 'c'], itemCount: 3 }, never), 3 + 3 * 8 + 32)
})

test('the default max_tokens of the most expensive model is quoted at its maximum cost', () => {
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

/** The recipe that the reference publishes for tools: schemas are rewritten, and every property and enum value is framed. */
async function recipeTokens(
  name: string,
  properties: Record<string, { type?: string; enum?: unknown[] }>,
): Promise<number> {
  const texts = [`${name}:`]
  let framing = 7 + 3 + 12
  for (const [property, { type = '', enum: values }] of Object.entries(properties)) {
    texts.push(`${property}:${type}:`)
    framing += 3 + (values === undefined ? 0 : 3 * values.length - 3)
    texts.push(...(values ?? []).map(String))
  }
  return framing + (await count(texts))
}

function toolInput(name: string, properties: object) {
  const chat = {
    model: 'gpt-6-astra',
    messages: [{ role: 'user', content: 'Hi' }],
    tools: [{ type: 'function', function: { name, parameters: { type: 'object', properties } } }],
  }
  const parsed = parseChatRequest(chat, {
    defaultModel: model.id,
    ids: [model.id],
    maxOutputTokens: () => model.maxOutputTokens,
  })
  return inputOf(toModelRequest(parsed, { promptCacheKey: 'k' }))
}

test('the bound covers tools with large enums as the reference counts them', async () => {
  const letters = 'abcdefghijklmnopqrstuvwxyz'
  const pairs = [...letters].flatMap((one) => [...letters].map((other) => one + other))
  for (const values of [
    Array.from({ length: 1_000 }, (_, index) => pairs[index % pairs.length]),
    Array.from({ length: 20_000 }, (_, index) => pairs[index % pairs.length]),
    Array.from({ length: 3_000 }, (_, index) => index),
    Array.from({ length: 900 }, (_, index) => index % 10),
  ]) {
    const properties = { code: { type: 'string', enum: values } }
    const bound = await boundQuotedInput(toolInput('pick', properties), count)
    assert.ok(bound >= (await recipeTokens('pick', properties)), `${values.length} values: ${bound}`)
  }
})

test('the bound covers random tools as the reference counts them', async () => {
  const property = fc.record(
    {
      type: fc.constantFrom('string', 'integer'),
      enum: fc.array(fc.oneof(fc.string({ maxLength: 6 }), fc.nat(99)), { maxLength: 300 }),
    },
    { requiredKeys: [] },
  )
  await fc.assert(
    fc.asyncProperty(
      fc.dictionary(fc.stringMatching(/^[a-z]{1,8}$/), property, { maxKeys: 60 }),
      async (properties) => {
        const bound = await boundInput(toolInput('pick', properties), count)
        assert.ok(bound >= (await recipeTokens('pick', properties)))
      },
    ),
    { numRuns: 40 },
  )
})

test('a prompt that grows past 4 KiB is never quoted at less', async () => {
  const bounds = await Promise.all(
    [4_000, 4_095, 4_096, 4_097, 4_200, 8_000, 16_000, 40_000].map((bytes) =>
      boundQuotedInput({ texts: ['a '.repeat(bytes / 2 + 1).slice(0, bytes)], itemCount: 1 }, count),
    ),
  )
  assert.deepEqual(
    bounds,
    bounds.toSorted((one, other) => one - other),
  )
  assert.deepEqual(bounds.slice(2, 4), [4_136, 4_136])
})

test('searching adds at most its three calls and what eight further rounds read', () => {
  const terra = loadPriceList(undefined).models.get('gpt-5.6-terra')!
  assert.equal(searchMax(terra, 500, 8_750n), BigInt(3 * 8_750 + 8 * 500 + 100_000))
})
