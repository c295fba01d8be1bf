import assert from 'node:assert/strict'
import { test } from 'node:test'
import { z } from 'zod'
import type { TestAccount } from '../support/service.ts'
import { clientSuite, model } from './client-suite.ts'
import { callWeather, callWeatherThrice, cite, Forecast, question, refuse, user, Weather } from './conversations.ts'
import { assertRowAddsUp } from './ledger-row.ts'
import type { Exchange } from './tap.ts'
import { type Chunk, readEventStream } from './wire.ts'

// By plain HTTP, without a client that could hide problems. The suite itself holds every answer to the public schemas and to the rules of
// the wire; the tests say what is in them.

const suite = clientSuite()

type Message = {
  readonly content: string | null
  readonly refusal: string | null
  readonly reasoning_content?: string
  readonly reasoning?: string
  readonly tool_calls?: readonly { readonly function: { readonly name: string; readonly arguments: string } }[]
  readonly annotations?: readonly unknown[]
}

const weatherTool = { type: 'function', function: { name: 'get_weather', parameters: z.toJSONSchema(Weather) } }
const schema = { name: 'forecast', strict: true, schema: z.toJSONSchema(Forecast) }

type Answered = {
  readonly title: string
  readonly body: { readonly messages: readonly object[]; readonly [name: string]: unknown }
  readonly finish: string
  readonly check: (message: Message) => unknown
}

const answers: readonly Answered[] = [
  { title: 'text', body: { messages: [user(question)] }, finish: 'stop', check: ({ content }) => content },
  {
    title: 'reasoning, under both of its names',
    body: { messages: [user(question)], reasoning_effort: 'high' },
    finish: 'stop',
    check: (message) => message.reasoning_content!.includes('\n\n') && message.reasoning === message.reasoning_content,
  },
  {
    title: 'reasoning of an open-weight model',
    body: { messages: [user(`${question} [sandbox:reasoning-text]`)] },
    finish: 'stop',
    check: (message) => message.reasoning_content,
  },
  {
    title: 'no reasoning where none was asked for',
    body: { messages: [user(question)], reasoning_effort: 'none' },
    finish: 'stop',
    check: (message) => !('reasoning_content' in message),
  },
  {
    title: 'a tool call',
    body: { messages: [user(callWeather)], tools: [weatherTool] },
    finish: 'tool_calls',
    check: ({ content, tool_calls }) => !content && tool_calls!.length === 1,
  },
  {
    title: 'parallel tool calls',
    body: { messages: [user(callWeatherThrice)], tools: [weatherTool] },
    finish: 'tool_calls',
    check: ({ tool_calls }) =>
      tool_calls!.map((call) => Weather.parse(JSON.parse(call.function.arguments))).length === 3,
  },
  {
    title: 'a JSON object',
    body: { messages: [user('Answer in JSON.')], response_format: { type: 'json_object' } },
    finish: 'stop',
    check: ({ content }) => typeof JSON.parse(content!) === 'object',
  },
  {
    title: 'JSON of a strict schema',
    body: { messages: [user(question)], response_format: { type: 'json_schema', json_schema: schema } },
    finish: 'stop',
    check: ({ content }) => Forecast.parse(JSON.parse(content!)),
  },
  {
    title: 'an answer cut at max_tokens',
    body: { messages: [user('Count. [sandbox:tokens 500]')], max_tokens: 100 },
    finish: 'length',
    check: ({ content }) => content,
  },
  {
    title: 'an answer cut below the upstream’s own minimum',
    body: { messages: [user('Count. [sandbox:tokens 500]')], max_tokens: 3, reasoning_effort: 'none' },
    finish: 'length',
    check: ({ content }) => content!.trim().split(/\s+/).length <= 3,
  },
  {
    title: 'filtered content',
    body: { messages: [user(`${question} [sandbox:content-filter]`)] },
    finish: 'content_filter',
    check: ({ content }) => content,
  },
  {
    title: 'a refusal',
    body: { messages: [user(refuse)] },
    finish: 'stop',
    check: ({ content, refusal }) => !content && refusal,
  },
  {
    title: 'citations',
    body: { messages: [user(cite)] },
    finish: 'stop',
    check: ({ annotations }) => annotations!.length === 2,
  },
  {
    title: 'an answer whose usage the upstream does not tell',
    body: { messages: [user(`${question} [sandbox:no-usage]`)] },
    finish: 'stop',
    check: ({ content }) => content,
  },
]

for (const { title, body, finish, check } of answers) {
  test(`${title}: the same buffered and streamed, on the wire and in the ledger`, async () => {
    const account = await suite.openAccount()
    const buffered = await suite.post(account, body)
    const streamed = await suite.post(account, { ...body, stream: true })
    const counted = await suite.post(account, { ...body, stream: true, stream_options: { include_usage: true } })
    const { choices, usage } = JSON.parse(buffered.text)
    const [choice] = choices as { message: Message; finish_reason: string }[]
    assert.equal(choice!.finish_reason, finish)
    assert.ok(check(choice!.message), JSON.stringify(choice!.message))
    for (const exchange of [streamed, counted]) {
      const { chunks } = readEventStream(exchange.text)
      assert.deepEqual(comparable(fold(chunks)), comparable(choice!.message))
      assert.equal(chunks.findLast((chunk) => chunk.choices.length > 0)!.choices[0]!.finish_reason, finish)
    }
    assert.deepEqual(readEventStream(counted.text).chunks.at(-1)!.usage, usage)
    for (const exchange of [buffered, streamed, counted]) await assertCharged(account, exchange, usage)
  })
}

type Usage = { prompt_tokens: number; completion_tokens: number; total_tokens: number; cost: number }

async function assertCharged(account: TestAccount, exchange: Exchange, usage: Usage): Promise<void> {
  const row = await suite.ended(account, exchange.headers['x-router-request-id']!)
  assert.equal(row.status, 'succeeded')
  assertRowAddsUp(row, exchange)
  assert.equal(usage.cost, Number(row.charged_atomic) / 1e6)
  const { prompt_tokens, completion_tokens, total_tokens } = row.usage!
  assert.deepEqual(
    { prompt_tokens, completion_tokens, total_tokens },
    {
      prompt_tokens: usage.prompt_tokens,
      completion_tokens: usage.completion_tokens,
      total_tokens: usage.total_tokens,
    },
  )
}

/** Puts a message together as the simplest client would. */
function fold(chunks: readonly Chunk[]): Message {
  const deltas = chunks.flatMap((chunk) => chunk.choices.map((choice) => choice.delta))
  const join = (name: 'content' | 'refusal' | 'reasoning_content' | 'reasoning') =>
    deltas.map((delta) => delta[name] ?? '').join('')
  const calls: { function: { name: string; arguments: string } }[] = []
  for (const { index, function: called } of deltas.flatMap((delta) => delta.tool_calls ?? [])) {
    calls[index] ??= { function: { name: called!.name!, arguments: '' } }
    calls[index].function.arguments += called!.arguments
  }
  return {
    content: join('content'),
    refusal: join('refusal'),
    reasoning_content: join('reasoning_content'),
    reasoning: join('reasoning'),
    tool_calls: calls,
    annotations: deltas.flatMap((delta) => delta.annotations ?? []),
  }
}

/** Both forms of a message with nothing for what is null, absent or empty, and without the ids of calls. */
function comparable({ content, refusal, reasoning_content, reasoning, tool_calls, annotations }: Message): object {
  return {
    content: content ?? '',
    refusal: refusal ?? '',
    reasoning_content: reasoning_content ?? '',
    reasoning: reasoning ?? '',
    tool_calls: (tool_calls ?? []).map((call) => call.function),
    annotations: annotations ?? [],
  }
}

test('a truncated call is not presented as complete', async () => {
  const account = await suite.openAccount()
  const messages = [user(`Now. [sandbox:call get_weather {"city":"${'Llanfairpwllgwyngyll '.repeat(20)}"}]`)]
  const body = { messages, tools: [weatherTool], max_tokens: 40, reasoning_effort: 'none' }
  const [choice] = JSON.parse((await suite.post(account, body)).text).choices
  assert.deepEqual(
    [choice.finish_reason, choice.message.content, 'tool_calls' in choice.message],
    ['length', '', false],
  )
  const { chunks } = readEventStream((await suite.post(account, { ...body, stream: true })).text)
  assert.equal(chunks.at(-1)!.choices[0]!.finish_reason, 'length')
})

for (const ending of ['fail-after', 'error-event-after', 'cut-after', 'end-after']) {
  test(`an upstream that breaks midway (${ending}): charged when it was streamed, free when it was not`, async () => {
    const account = await suite.openAccount()
    const body = { messages: [user(`Count. [sandbox:${ending} 60]`)] }
    const streamed = await suite.post(account, { ...body, stream: true, stream_options: { include_usage: true } })
    assert.equal(readEventStream(streamed.text).error!.code, 'upstream_error')
    const buffered = await suite.post(account, body)
    assert.deepEqual([buffered.status, buffered.headers['x-router-charged-usdc']], [502, '0'])
    for (const [exchange, isFree] of [
      [streamed, false],
      [buffered, true],
    ] as const) {
      const row = await suite.ended(account, exchange.headers['x-router-request-id']!)
      assertRowAddsUp(row, exchange)
      assert.deepEqual([row.status, row.error?.code], ['failed', 'upstream_error'])
      assert.equal(row.charged_atomic === '0', isFree)
    }
  })
}

test('the model list is valid, with and without a key', async () => {
  await suite.send('/models', undefined)
  await suite.send(`/models/${model}`, { apiKey: 'wrong' })
  assert.deepEqual(suite.statuses, [200, 200])
})
