import assert from 'node:assert/strict'
import { test } from 'node:test'
import { loadPriceList } from '../billing/price-list.ts'
import { parseChatRequest } from '../inference/chat-request.ts'
import { fromAtomic } from '../money/usdc.ts'
import { maxOutputTokensMin } from '../providers/model-request.ts'
import { type AdmissionParts, quoteRequest } from './admit.ts'

const prices = loadPriceList(undefined)
const model = prices.models.get('gpt-5.6-terra')!

const models = { defaultModel: model.id, ids: [model.id], maxOutputTokens: () => model.maxOutputTokens }
const counting = { account: 'a', signal: new AbortController().signal, refuseUnpaid: async () => {} }

/** The most tokens that the upstream may write, and the most that are quoted, of a request whose input counts as this many tokens. */
async function tokensFor(inputTokens: number, maxTokens: number): Promise<readonly [sent: number, quoted: number]> {
  const asked = {
    model: model.id,
    messages: [{ role: 'user', content: 'penny '.repeat(model.contextLength) }],
    max_tokens: maxTokens,
    web_search: false,
    web_fetch: false,
  }
  const inFlightCap = fromAtomic(1_000_000n)
  const parts = { web: {}, prices, inFlightCap, countTokens: async () => inputTokens } as unknown as AdmissionParts
  const { request, quote } = await quoteRequest(parts, parseChatRequest(asked, models), 'k', counting)
  return [request.maxOutputTokens, quote.maxTokens]
}

test('near the context limit the upstream is asked for what fits, and never for fewer tokens than its minimum', async () => {
  // With the framing of one message and of the answer.
  const filled = (left: number) => model.contextLength - 6 - left
  assert.deepEqual(await tokensFor(filled(maxOutputTokensMin), 5), [maxOutputTokensMin, 5])
  assert.deepEqual(await tokensFor(filled(50), 100), [50, 50])
  assert.deepEqual(await tokensFor(filled(50), 20), [20, 20])
  await assert.rejects(tokensFor(filled(maxOutputTokensMin - 1), 5), { code: 'context_length_exceeded' })
})

test('searches may add no more than the in-flight cap leaves beside the quote', async () => {
  const chat = parseChatRequest({ messages: [{ role: 'user', content: 'Hi' }], max_tokens: 100 }, models)
  const quoteBelow = (cap: bigint) => {
    const parts = { web: { search: {} }, prices, inFlightCap: fromAtomic(cap) } as unknown as AdmissionParts
    return quoteRequest(parts, chat, 'k', counting)
  }
  const { quote, searchMax } = await quoteBelow(1_000_000n)
  assert.ok(searchMax > 500n)
  assert.equal((await quoteBelow(quote.amount + 500n)).searchMax, 500n)
  assert.equal((await quoteBelow(quote.amount - 1n)).searchMax, 0n)
})
