import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type AIMessageChunk, HumanMessage, type UsageMetadata } from '@langchain/core/messages'
import { tool } from '@langchain/core/tools'
import { ChatOpenAI, ChatOpenAICompletions } from '@langchain/openai'
import { APIError, AuthenticationError, InternalServerError, NotFoundError, RateLimitError } from 'openai'
import type { TestAccount } from '../support/service.ts'
import { clientSuite, dearModel, model } from './client-suite.ts'
import {
  callWeatherThrice,
  cities,
  Forecast,
  failMidway,
  question,
  refuse,
  stallMidway,
  staySilent,
  upstreamDown,
  Weather,
  weatherDescription,
  weatherIn,
} from './conversations.ts'

const suite = clientSuite()

// ChatOpenAI would send most of these models to /v1/responses; this is LangChain's class for chat completions.
function chatOf({ apiKey }: { readonly apiKey: string }, options: object = {}): ChatOpenAICompletions {
  return new ChatOpenAICompletions({ model, apiKey, configuration: { baseURL: suite.baseUrl }, ...options })
}

async function openChat(balance?: string): Promise<ChatOpenAICompletions> {
  return chatOf(await suite.openAccount(balance))
}

async function collect(stream: AsyncIterable<AIMessageChunk>): Promise<AIMessageChunk> {
  const chunks = await Array.fromAsync(stream)
  return chunks.reduce((whole, chunk) => whole.concat(chunk))
}

test('text, reasoning and usage are the same buffered and streamed', async () => {
  const chat = await openChat()
  const buffered = await chat.invoke(question)
  const streamed = await collect(await chat.stream(question))
  assert.match(buffered.text, /sandbox model/)
  assert.match(String(buffered.additional_kwargs.reasoning_content), /I think/)
  assert.ok(usageOf(buffered).output_token_details!.reasoning! > 0)
  assert.equal(streamed.text, buffered.text)
  assert.equal(streamed.additional_kwargs.reasoning_content, buffered.additional_kwargs.reasoning_content)
  assert.deepEqual(usageOf(streamed), usageOf(buffered))
  for (const message of [buffered, streamed]) {
    assert.match(message.id!, /^chatcmpl-/)
    assert.equal(message.response_metadata.finish_reason, 'stop')
  }
})

/** Without the members that LangChain sets to undefined in one form and leaves out in the other. */
function usageOf(message: { readonly usage_metadata?: unknown }): UsageMetadata {
  return JSON.parse(JSON.stringify(message.usage_metadata))
}

test('ChatOpenAI itself works with a model that it does not send to /v1/responses', async () => {
  const { apiKey } = await suite.openAccount()
  const chat = new ChatOpenAI({ model: dearModel, apiKey, configuration: { baseURL: suite.baseUrl } })
  assert.equal((await collect(await chat.stream(question))).text, (await chat.invoke(question)).text)
})

test('ChatOpenAI with a model that it sends to the Responses API gets an error that points to chat completions', async () => {
  const { apiKey } = await suite.openAccount()
  const chat = new ChatOpenAI({ model, apiKey, configuration: { baseURL: suite.baseUrl } })
  await assert.rejects(
    chat.invoke(question),
    (error) => error instanceof NotFoundError && /\/v1\/chat\/completions/.test(error.message),
  )
  assert.deepEqual(suite.statuses, [404])
})

test('parallel tool calls are run and answered, buffered and streamed', async () => {
  const weather = tool(weatherIn, { name: 'get_weather', description: weatherDescription, schema: Weather })
  const chat = (await openChat()).bindTools([weather])
  const asked = new HumanMessage(callWeatherThrice)
  for (const called of [await chat.invoke([asked]), await collect(await chat.stream([asked]))]) {
    assert.deepEqual(
      called.tool_calls!.map(({ name, args }) => [name, args.city]),
      cities.map((city) => ['get_weather', city]),
    )
    const results = await Promise.all(called.tool_calls!.map((call) => weather.invoke({ ...call, type: 'tool_call' })))
    const history = [asked, called, ...results]
    const answers = [await chat.invoke(history), await collect(await chat.stream(history))]
    for (const answer of answers)
      for (const city of cities) assert.ok(answer.text.includes(weatherIn({ city })), answer.text)
  }
})

test('structured output has the schema’s own type, buffered and streamed', async () => {
  const chat = (await openChat()).withStructuredOutput(Forecast)
  const buffered = await chat.invoke(question)
  const streamed = await Array.fromAsync(await chat.stream(question))
  assert.deepEqual(Forecast.parse(buffered), buffered)
  assert.deepEqual(streamed.at(-1), buffered)
  const formats = suite.exchanges.map(({ requestBody }) => requestBody.response_format as { type: string })
  assert.ok(formats.every(({ type }) => type === 'json_schema'))
})

test('a refusal, which LangChain does not read, is an empty answer and no error', async () => {
  const chat = await openChat()
  for (const message of [await chat.invoke(refuse), await collect(await chat.stream(refuse))]) {
    assert.deepEqual([message.text, message.response_metadata.finish_reason], ['', 'stop'])
  }
})

const failures = [
  {
    title: 'a bad key',
    chat: async () => chatOf({ apiKey: 'penny_nobody' }),
    kind: AuthenticationError,
    status: 401,
    code: 'invalid_api_key',
  },
  { title: 'an empty balance', chat: () => openChat('0'), kind: APIError, status: 402, code: 'insufficient_balance' },
  {
    title: 'an unknown model',
    chat: async () => chatOf(await suite.openAccount(), { model: 'gpt-0' }),
    kind: NotFoundError,
    status: 404,
    code: 'model_not_found',
  },
]
for (const { title, chat: open, kind, status, code } of failures) {
  test(`${title} is the OpenAI SDK’s ${kind.name} of status ${status}, and is not tried again`, async () => {
    const chat = await open()
    const isExpected = (error: unknown) =>
      error instanceof kind && error.status === status && error.code === code && /^req_/.test(error.requestID!)
    await assert.rejects(chat.invoke(question), isExpected)
    await assert.rejects(async () => collect(await chat.stream(question)), isExpected)
    assert.deepEqual(suite.statuses, [status, status])
  })
}

test('with too much in flight LangChain retries by itself, and succeeds once money is free', async () => {
  const account = await suite.openAccount()
  const full = await suite.fillCap(account)
  await assert.rejects(
    chatOf(account, { maxRetries: 0 }).invoke(question),
    (error) => error instanceof RateLimitError && error.code === 'in_flight_cap',
  )
  const refused = suite.next(429)
  const answer = chatOf(account).invoke(question)
  await refused
  await full.release()
  assert.match((await answer).text, /sandbox model/)
  assert.deepEqual([...new Set(suite.statuses)], [429, 200])
})

test('an upstream that is down is an InternalServerError; one that fails midway is raised after what was said', async () => {
  const chat = chatOf(await suite.openAccount(), { maxRetries: 0 })
  await assert.rejects(
    chat.invoke(upstreamDown),
    (error) => error instanceof InternalServerError && error.code === 'upstream_error',
  )
  let text = ''
  await assert.rejects(
    async () => {
      for await (const chunk of await chat.stream(failMidway)) text += chunk.text
    },
    (error) => error instanceof APIError && error.code === 'upstream_error',
  )
  assert.match(text, /sandbox model/)
  assert.equal(suite.exchanges.length, 2)
})

async function endedAfterAbort(account: TestAccount): Promise<{ status: string; charged: number }> {
  const row = await suite.ended(account, await suite.heldRequest(account))
  return { status: row.status, charged: Number(row.charged_atomic) }
}

test('leaving a stream ends the request, charged for what was written', async () => {
  const account = await suite.openAccount()
  const abort = new AbortController()
  const stream = await chatOf(account).stream(stallMidway, { signal: abort.signal })
  await assert.rejects(async () => {
    for await (const chunk of stream) if (chunk.text !== '') abort.abort()
  }, /abort/i)
  const { status, charged } = await endedAfterAbort(account)
  assert.equal(status, 'cancelled')
  assert.ok(charged > 0)
})

test('an aborted request is an AbortError, and free when nothing was written', async () => {
  const account = await suite.openAccount()
  const abort = new AbortController()
  const answer = chatOf(account).invoke(staySilent, { signal: abort.signal })
  await suite.heldRequest(account)
  abort.abort()
  await assert.rejects(answer, { name: 'AbortError' })
  assert.deepEqual(await endedAfterAbort(account), { status: 'cancelled', charged: 0 })
})
