import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { assertBooksClosed } from '../support/audit.ts'
import {
  answers,
  completed,
  created,
  functionCall,
  type ScriptedUpstream,
  startScriptedUpstream,
  text,
} from '../support/scripted-upstream.ts'
import { type ScriptedWeb, startScriptedWeb } from '../support/scripted-web.ts'
import {
  getRow,
  postChat,
  startTestService,
  type TestAccount,
  type TestService,
  withoutTools,
} from '../support/service.ts'

// What is quoted and which cache of prompts is named, before anything is held: 1 atomic unit for a token of input, 5 for one of output; a search is 8,750.

let folder: string
let web: ScriptedWeb
let upstream: ScriptedUpstream
let service: TestService
let account: TestAccount
before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'penny-quotes-'))
  const prices = { input_per_million: '1', output_per_million: '5' }
  const models = [
    { id: 'wide', ...prices, context_length: 400_000, max_output_tokens: 64_000, default: true },
    { id: 'narrow', ...prices, context_length: 3_000, max_output_tokens: 2_000 },
  ]
  writeFileSync(join(folder, 'models.json'), JSON.stringify(models))
  web = startScriptedWeb()
  upstream = await startScriptedUpstream()
  service = await startTestService({
    upstreamUrl: upstream.url,
    web: web.tools,
    environment: { MODELS_FILE: join(folder, 'models.json') },
  })
  account = await service.openAccount('25')
})
after(async () => {
  try {
    await assertBooksClosed(service.database)
  } finally {
    await service.stop()
    await upstream.close()
    rmSync(folder, { recursive: true })
  }
})

const messages = [{ role: 'user', content: 'What is a penny?' }]

type QuoteBody = {
  readonly quote_atomic: string
  readonly max_tokens: number
  readonly input_tokens: number
  readonly input_tokens_max: number
  readonly search_max_atomic: string
  readonly search_max: string
  readonly search_per_call_atomic: string
  readonly search_calls_max: number
}

async function quoteOf(body: object): Promise<QuoteBody> {
  const answer = await fetch(`${service.baseUrl}/quote`, {
    method: 'POST',
    headers: { authorization: `Bearer ${account.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ messages, ...body }),
  })
  assert.equal(answer.status, 200)
  return (await answer.json()) as QuoteBody
}

test('a quote says what searching may add to it, and 0 where the model cannot search', async () => {
  const quoted = await quoteOf({ max_tokens: 100 })
  const input = quoted.input_tokens_max
  assert.equal(Number(quoted.quote_atomic), input + 500)
  assert.equal(Number(quoted.search_max_atomic), 3 * 8_750 + 8 * input + 100_000)
  assert.equal(Number(quoted.search_max), Number(quoted.search_max_atomic) / 1e6)
  assert.deepEqual([quoted.search_calls_max, quoted.search_per_call_atomic], [3, '8750'])
  const tool = { type: 'function', function: { name: 'look_up' } }
  for (const body of [{ web_search: false }, { tools: [tool] }, { tool_choice: 'none' }]) {
    const bounded = await quoteOf(body)
    assert.deepEqual(
      [bounded.search_max_atomic, bounded.search_per_call_atomic, bounded.search_calls_max],
      ['0', '0', 0],
    )
  }
})

test('input_tokens is what the input is charged as when this service counts it', async () => {
  const tool = { type: 'function', function: { name: 'look_up', parameters: { type: 'object', properties: {} } } }
  const conversation = [
    { role: 'system', content: 'Answer in one word.' },
    { role: 'user', content: 'What is a penny? 硬币 🪙' },
    { role: 'assistant', content: 'A coin.' },
    { role: 'user', content: 'And a euro?' },
  ]
  const long = [{ role: 'user', content: ' penny'.repeat(5_000) }]
  for (const body of [
    { messages, ...withoutTools },
    { messages: conversation },
    { messages: conversation, tools: [tool] },
    { messages: long, ...withoutTools },
  ]) {
    // The model reports more input than is possible, so it is counted here.
    upstream.answer = answers(created, text('Hi'), completed({ input_tokens: 99_000, output_tokens: 1 }))
    const quoted = await quoteOf({ ...body, max_tokens: 50 })
    assert.ok(quoted.input_tokens > 0 && quoted.input_tokens < quoted.input_tokens_max)
    const row = await getRow(
      service,
      account.apiKey,
      await postChat(service, account.apiKey, { ...body, max_tokens: 50 }),
    )
    assert.deepEqual([row.usage?.source, row.usage?.prompt_tokens], ['counted', quoted.input_tokens])
  }
  // 5 tokens of text, 3 for the message and 3 for the answer.
  assert.equal((await quoteOf({ messages, ...withoutTools })).input_tokens, 11)
})

test('a model that searches and reads as much as it can costs no more than quote and search_max', async () => {
  web.search = () =>
    Array.from({ length: 8 }, (_, index) => ({
      title: 'Long',
      url: `https://example.com/${index}`,
      snippet: '硬币'.repeat(400),
      publishedAt: undefined,
    }))
  web.page = (url) => ({ url, title: 'Long', text: 'A penny is a small coin. '.repeat(8_000), truncated: false })
  const search = (index: number) => [created, ...functionCall('web_search', { query: `q${index}` })]
  const read = (index: number) => [created, ...functionCall('web_fetch', { url: `https://example.com/${index}` })]
  const turns = [search(0), search(1), search(2), read(0), read(1), read(2), read(3), read(4)]
  // Each round reports as much input as it may have.
  const left = [...turns]
  upstream.answer = (exchange) => {
    const turn = left.shift() ?? [created, text('A coin.')]
    const bytes = JSON.stringify(exchange.body).length
    exchange.send(...turn, completed({ input_tokens: Math.floor(bytes / 8), output_tokens: 5 }))
    exchange.end()
  }
  const quoted = await quoteOf({ max_tokens: 2_000 })
  const answer = await postChat(service, account.apiKey, { messages, max_tokens: 2_000 })
  assert.equal(answer.status, 200)
  const row = await getRow(service, account.apiKey, answer)
  assert.equal(row.cost.search_calls, 3)
  assert.ok(Number(row.extended_atomic) <= Number(quoted.search_max_atomic), row.extended_atomic)
  assert.ok(Number(row.charged_atomic) <= Number(quoted.quote_atomic) + Number(quoted.search_max_atomic))
  web.forget()
})

test('the answer is held for and asked for no further than the context of the model reaches', async () => {
  upstream.answer = answers(created, text('Hi'), completed())
  const body = { model: 'narrow', messages: [{ role: 'user', content: ' penny'.repeat(2_500) }], ...withoutTools }
  // 2,500 tokens, 3 of framing for the message and 3 for the answer: 494 are left of 3,000.
  const quoted = await quoteOf({ ...body, max_tokens: 2_000 })
  assert.equal(quoted.max_tokens, 494)
  assert.equal(Number(quoted.quote_atomic), quoted.input_tokens_max + 5 * 494)
  const answer = await postChat(service, account.apiKey, { ...body, max_tokens: 2_000 })
  assert.equal(answer.headers.get('x-router-held-usdc'), quoted.quote_atomic)
  assert.equal(upstream.exchanges.at(-1)!.body.max_output_tokens, 494)
  await answer.text()

  const short = await postChat(service, account.apiKey, { ...body, max_tokens: 400 })
  assert.equal(upstream.exchanges.at(-1)!.body.max_output_tokens, 400)
  await short.text()

  const full = { ...body, messages: [{ role: 'user', content: ' penny'.repeat(2_990) }] }
  const refused = await postChat(service, account.apiKey, full)
  const { error } = (await refused.json()) as { error: { code: string; message: string } }
  assert.deepEqual([refused.status, error.code], [400, 'context_length_exceeded'])
  assert.match(error.message, /2990 tokens.*3000/)
})

/** The upstream's request for a body, and the id under which the customer finds it. */
async function sent(apiKey: string, body: object): Promise<{ body: Record<string, unknown>; requestId: string }> {
  upstream.answer = answers(created, text('Hi'), completed())
  const answer = await postChat(service, apiKey, { messages, ...withoutTools, ...body })
  assert.equal(answer.status, 200, await answer.text())
  return { body: upstream.exchanges.at(-1)!.body, requestId: answer.headers.get('x-router-request-id')! }
}

// `cached_tokens` is reported back: with one cache for all, a customer could probe for the prompts of another.
test('accounts that choose the same prompt_cache_key do not share a cache', async () => {
  const [one, other] = [await service.openAccount('25'), await service.openAccount('25')]
  const keyOf = async (apiKey: string, prompt_cache_key: string): Promise<string> =>
    String((await sent(apiKey, { prompt_cache_key })).body.prompt_cache_key)
  const key = await keyOf(one.apiKey, 'chat-7')
  assert.equal(await keyOf(one.apiKey, 'chat-7'), key, 'requests of one account do')
  assert.notEqual(await keyOf(other.apiKey, 'chat-7'), key)
  assert.notEqual(await keyOf(one.apiKey, 'chat-8'), key)
  const long = await keyOf(one.apiKey, 'k'.repeat(200))
  assert.equal(await keyOf(one.apiKey, 'k'.repeat(128)), long, 'cut to 128 characters')
  assert.notEqual(await keyOf(one.apiKey, 'k'.repeat(127)), long)
  for (const sentKey of [key, long]) assert.ok(sentKey.length <= 128)
})

test('without a prompt_cache_key the request’s own id is sent', async () => {
  const { apiKey } = await service.openAccount('25')
  for (const absent of [{}, { prompt_cache_key: null }, { prompt_cache_key: '' }]) {
    const { body, requestId } = await sent(apiKey, absent)
    assert.equal(body.prompt_cache_key, requestId)
  }
})
