import assert from 'node:assert/strict'
import { test } from 'node:test'
import { loadPriceList } from '../billing/price-list.ts'
import { parseChatRequest } from '../inference/chat-request.ts'
import { maxOutputTokensMin } from '../providers/model-request.ts'
import { type AdmissionParts, quoteRequest } from './admit.ts'

const prices = loadPriceList(undefined)
const model = prices.models.get('gpt-5.6-terra')!

/** The most tokens that the upstream may write, and the most that are quoted, of a request whose input counts as this many tokens. */
async function tokensFor(inputTokens: number, maxTokens: number): Promise<readonly [sent: number, quoted: number]> {
  const asked = {
    model: model.id,
    messages: [{ role: 'user', content: 'penny '.repeat(model.contextLength) }],
    max_tokens: maxTokens,
    web_search: false,
    web_fetch: false,
  }
  const models = { defaultModel: model.id, ids: [model.id], maxOutputTokens: () => model.maxOutputTokens }
  const parts = { web: {}, prices, countTokens: async () => inputTokens } as unknown as AdmissionParts
  const { request, quote } = await quoteRequest(parts, parseChatRequest(asked, models), 'k', {
    account: 'a',
    signal: new AbortController().signal,
    refuseUnpaid: async () => {},
  })
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
