import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import OpenAI from 'openai'
import { assertBooksClosed } from '../support/audit.ts'
import { completed, created, type ScriptedUpstream, startScriptedUpstream, text } from '../support/scripted-upstream.ts'
import { getRow, postChat, startTestService, type TestService } from '../support/service.ts'

let service: TestService
let paused: TestService
let upstream: ScriptedUpstream
before(async () => {
  upstream = await startScriptedUpstream()
  service = await startTestService()
  paused = await startTestService({ upstreamUrl: upstream.url })
})
after(async () => {
  try {
    await assertBooksClosed(service.database, paused.database)
  } finally {
    await service.stop()
    await paused.stop()
    await upstream.close()
  }
})

const question = [{ role: 'user' as const, content: 'What is a penny?' }]

test('an answer says what was held and charged, and its ledger row adds up to the atomic unit', async () => {
  const { apiKey } = await service.openAccount('25')
  const answer = await postChat(service, apiKey, { messages: question })
  assert.equal(answer.status, 200)
  const body = (await answer.json()) as { id: string; usage: { cost: number } }
  const row = await getRow(service, apiKey, answer)
  assert.equal(row.status, 'succeeded')
  assert.equal(body.id, `chatcmpl-${row.id.slice(4)}`)
  assert.equal(answer.headers.get('x-request-id'), row.id)
  assert.equal(answer.headers.get('x-router-held-usdc'), row.held_atomic)
  assert.equal(answer.headers.get('x-router-charged-usdc'), row.charged_atomic)
  assert.equal(BigInt(row.quote_atomic), BigInt(row.from_credit_atomic) + BigInt(row.authorized_atomic))
  assert.equal(BigInt(row.held_atomic), BigInt(row.charged_atomic) + BigInt(row.refunded_atomic))
  // Prices of the model: 1 USDC for a million tokens of input, 5 for output.
  assert.equal(Number(row.charged_atomic), row.usage!.prompt_tokens + 5 * row.usage!.completion_tokens)
  assert.equal(body.usage.cost, Number(row.charged_atomic) / 1e6)
})

test('a conversation longer than the model reads is refused by our own count, and nothing is held', async () => {
  const { apiKey } = await service.openAccount('25')
  // Each costs less than what may be in flight: only the model's limit applies.
  const body = (words: number) => ({ messages: [{ role: 'user', content: 'penny '.repeat(words) }], max_tokens: 16 })
  const answer = await postChat(service, apiKey, body(401_000))
  const { error } = (await answer.json()) as { error: { code: string; param: string; message: string } }
  assert.deepEqual([answer.status, error.code, error.param], [400, 'context_length_exceeded', 'messages'])
  assert.match(error.message, /more than 400000 tokens, the context length of gpt-5\.6-terra/)
  assert.equal(answer.headers.get('x-router-held-usdc'), null)
  const quote = await fetch(`${service.baseUrl}/quote`, {
    method: 'POST',
    body: JSON.stringify(body(401_000)),
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
  })
  assert.equal(quote.status, 400)
  assert.equal((await postChat(service, apiKey, body(399_000))).status, 200)
})

test('the OpenAI SDK works with only its base address and key changed, buffered and streamed', async () => {
  const { apiKey } = await service.openAccount('25')
  const client = new OpenAI({ baseURL: service.baseUrl, apiKey })
  const buffered = await client.chat.completions.create({ model: 'gpt-5.6-terra', messages: question })
  assert.match(buffered.choices[0]!.message.content!, /sandbox model/)
  const stream = await client.chat.completions.create({
    model: 'gpt-5.6-terra',
    messages: question,
    stream: true,
    stream_options: { include_usage: true },
  })
  let streamed = ''
  let usage: OpenAI.CompletionUsage | null | undefined
  for await (const chunk of stream) {
    streamed += chunk.choices[0]?.delta.content ?? ''
    usage = chunk.usage ?? usage
  }
  assert.equal(streamed, buffered.choices[0]!.message.content)
  assert.equal(usage?.completion_tokens, buffered.usage?.completion_tokens)
})

test('the second request authorizes about what the first one truly cost', async () => {
  const { apiKey } = await service.openAccount('25')
  const first = await getRow(service, apiKey, await postChat(service, apiKey, { messages: question }))
  const second = await getRow(service, apiKey, await postChat(service, apiKey, { messages: question }))
  assert.equal(first.authorized_atomic, first.quote_atomic)
  assert.equal(BigInt(second.authorized_atomic), BigInt(second.quote_atomic) - BigInt(first.refunded_atomic))
  assert.equal(second.authorized_atomic, first.charged_atomic)
})

test('the row is there from admission, and final before the last byte of a stream', async () => {
  const { apiKey } = await paused.openAccount('25')
  const begun = Promise.withResolvers<void>()
  const go = Promise.withResolvers<void>()
  upstream.answer = async (exchange) => {
    exchange.send(created, text('Hel'))
    begun.resolve()
    await go.promise
    exchange.send(text('lo'), completed())
    exchange.end()
  }
  const answer = await postChat(paused, apiKey, { messages: question, stream: true })
  await begun.promise
  const open = await getRow(paused, apiKey, answer)
  assert.deepEqual([open.status, open.charged_atomic, open.refunded_atomic], ['held', '0', '0'])
  go.resolve()
  await answer.text()
  const ended = await getRow(paused, apiKey, answer)
  assert.deepEqual([ended.status, ended.charged_atomic], ['succeeded', '35'])
})

// The model says nothing until all five hundred are decided: returned credit would admit more.
test('of five hundred requests at once on money for ten, ten are served and the others get a clean 402', async () => {
  const quote = await quoteOf(paused, { messages: question, max_tokens: 100 })
  const { apiKey } = await paused.openAccount(atomic(quote * 10n + quote / 2n))
  const statuses = await raceWhilePaused(apiKey, 500, 490)
  assert.deepEqual(statuses, { 200: 10, 402: 490 })
})

test('of a hundred requests at once on a key limited to ten, ten are served', async () => {
  const quote = await quoteOf(paused, { messages: question, max_tokens: 100 })
  const { apiKey } = await paused.openAccount('25', { limit: (quote * 10n) as never })
  assert.deepEqual(await raceWhilePaused(apiKey, 100, 90), { 200: 10, 402: 90 })
})

test('beyond one dollar in flight requests get a 429 that asks to be retried', async () => {
  const { apiKey } = await paused.openAccount('25')
  // Each quote is a little above 0.1 USDC: nine fit below 1.00.
  assert.deepEqual(await raceWhilePaused(apiKey, 30, 21, 20_000), { 200: 9, 429: 21 })
})

test('a 402 says how much is missing and which max_tokens would fit', async () => {
  const { apiKey } = await service.openAccount('0.01')
  const answer = await postChat(service, apiKey, { messages: question })
  const { error } = (await answer.json()) as { error: Record<string, unknown> }
  assert.equal(answer.status, 402)
  assert.equal(error.code, 'insufficient_balance')
  assert.equal(error.type, 'payment_required')
  assert.deepEqual([error.available_atomic, error.available], ['10000', '0.01'])
  assert.equal(error.required, String(Number(error.required_atomic) / 1e6))
  assert.deepEqual([error.held_atomic, error.held], ['0', '0'])
  assert.match(String(error.message), /Deposit USDC, or ask for at most/)
  assert.equal(answer.headers.get('x-should-retry'), 'false')
  const affordable = error.affordable_max_tokens as number
  assert.equal((await postChat(service, apiKey, { messages: question, max_tokens: affordable + 1 })).status, 402)
  assert.equal((await postChat(service, apiKey, { messages: question, max_tokens: affordable })).status, 200)
})

test('a 402 that clears when running requests end says so', async () => {
  const { apiKey } = await paused.openAccount('0.5')
  // 0.3 USDC, and a little for the input.
  const finish = await leaveOpen(apiKey, { messages: question, max_tokens: 60_000 })
  const answer = await postChat(paused, apiKey, { messages: question, max_tokens: 50_000 })
  const { error } = (await answer.json()) as { error: Record<string, unknown> }
  assert.deepEqual([answer.status, error.code], [402, 'insufficient_balance'])
  assert.match(String(error.message), /Open requests hold 0\.3\d* USDC: wait until they end/)
  // The specification: 402 is not retried by itself. The message says when it helps.
  assert.equal(answer.headers.get('x-should-retry'), 'false')
  assert.equal(answer.headers.get('retry-after'), null)
  await finish()
  assert.equal((await postChat(paused, apiKey, { messages: question, max_tokens: 50_000 })).status, 200)
})

test('the wait that a 429 for money in flight names follows how long requests take', async () => {
  const { apiKey } = await paused.openAccount('25')
  // A model that this service was not asked for yet: nothing is known of how long it takes.
  const body = { model: 'gpt-6-astra', messages: question, max_tokens: 32_000 }
  const finish = await leaveOpen(apiKey, body)
  const answer = await postChat(paused, apiKey, body)
  assert.equal(answer.status, 429)
  const seconds = Number(answer.headers.get('retry-after'))
  assert.ok(seconds >= 2 && seconds <= 30, `${seconds} s`)
  assert.equal(answer.headers.get('x-should-retry'), 'true')
  await finish()
})

test('the error for a quote above the cap says that waiting cannot help, and which max_tokens fits', async () => {
  const { apiKey } = await service.openAccount('25')
  const big = { model: 'gpt-6-astra', messages: question, max_tokens: 100_000 }
  const answer = await postChat(service, apiKey, big)
  const { error } = (await answer.json()) as { error: Record<string, unknown> }
  assert.equal(answer.status, 429)
  assert.equal(error.code, 'quote_exceeds_cap')
  assert.equal(answer.headers.get('x-should-retry'), 'false')
  const second = await postChat(service, apiKey, { ...big, max_tokens: error.affordable_max_tokens })
  assert.equal(second.status, 200)
})

test('while money is in flight, the advised max_tokens is still admitted', async () => {
  const { apiKey } = await paused.openAccount('25')
  // 0.5 USDC, and a little for the input.
  const body = { model: 'gpt-6-astra', messages: question }
  const finish = await leaveOpen(apiKey, { ...body, max_tokens: 20_000 })
  const refused = await postChat(paused, apiKey, { ...body, max_tokens: 100_000 })
  const { error } = (await refused.json()) as { error: Record<string, unknown> }
  assert.deepEqual([refused.status, error.code], [429, 'quote_exceeds_cap'])
  const most = Number(error.affordable_max_tokens)
  assert.equal((await postChat(paused, apiKey, { ...body, max_tokens: most + 1 })).status, 429)
  const admitted = postChat(paused, apiKey, { ...body, max_tokens: most })
  await finish()
  assert.equal((await admitted).status, 200)
})

test('a refused request is found in the log by the id of its answer', async () => {
  const { apiKey } = await service.openAccount('0')
  const answer = await postChat(service, apiKey, { messages: question })
  assert.equal(answer.status, 402)
  const row = await untilWritten(() => getRow(service, apiKey, answer))
  assert.deepEqual([row.status, row.charged_atomic, row.error?.code], ['refused', '0', 'insufficient_balance'])
})

/** Sends a request that stays open until the returned function lets it end. */
async function leaveOpen(apiKey: string, body: object): Promise<() => Promise<void>> {
  const arrived = Promise.withResolvers<void>()
  const speak = Promise.withResolvers<void>()
  upstream.answer = async (exchange) => {
    arrived.resolve()
    await speak.promise
    exchange.send(created, text('A coin.'), completed())
    exchange.end()
  }
  const running = postChat(paused, apiKey, body)
  await arrived.promise
  return async () => {
    speak.resolve()
    assert.equal((await running).status, 200)
  }
}

/** Sends requests while the upstream is silent; once `refused` of them are answered, lets it speak. Counts statuses. */
async function raceWhilePaused(
  apiKey: string,
  count: number,
  refused: number,
  maxTokens = 100,
): Promise<Record<string, number>> {
  const decided = Promise.withResolvers<void>()
  upstream.answer = async (exchange) => {
    await decided.promise
    exchange.send(created, text('Hi'), completed())
    exchange.end()
  }
  let refusals = 0
  const answers = await Promise.all(
    Array.from({ length: count }, async () => {
      const answer = await postChat(paused, apiKey, { messages: question, max_tokens: maxTokens })
      await answer.arrayBuffer()
      if (answer.status !== 200 && ++refusals === refused) decided.resolve()
      return answer.status
    }),
  )
  return Object.fromEntries(Object.entries(Object.groupBy(answers, String)).map(([status, of]) => [status, of!.length]))
}

async function quoteOf(target: TestService, body: object): Promise<bigint> {
  const { apiKey } = await target.openAccount('25')
  upstream.answer = (exchange) => {
    exchange.send(created, text('Hi'), completed())
    exchange.end()
  }
  return BigInt((await postChat(target, apiKey, body)).headers.get('x-router-held-usdc')!)
}

function atomic(units: bigint): string {
  return `0.${units.toString().padStart(6, '0')}`
}

/** Refusals are written in the background: a moment later they are there. */
async function untilWritten<Row extends { readonly status?: string }>(read: () => Promise<Row>): Promise<Row> {
  for (;;) {
    const row = await read()
    if (row.status !== undefined) return row
  }
}
