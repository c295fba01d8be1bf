import assert from 'node:assert/strict'
import { test } from 'node:test'
import OpenAI from 'openai'
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod'
import type { TestAccount } from '../support/service.ts'
import { clientSuite, model } from './client-suite.ts'
import {
  callWeatherThrice,
  cities,
  Forecast,
  failMidway,
  question,
  refusal,
  refuse,
  stallMidway,
  staySilent,
  upstreamDown,
  user,
  Weather,
  weatherDescription,
  weatherIn,
} from './conversations.ts'

const suite = clientSuite()

function clientOf(account: TestAccount): OpenAI {
  return new OpenAI({ baseURL: suite.baseUrl, apiKey: account.apiKey })
}

async function openClient(balance?: string): Promise<OpenAI> {
  return clientOf(await suite.openAccount(balance))
}

const asked = { model, messages: [user(question)] }

test('text, reasoning and usage are the same buffered and streamed, and the request id is at hand', async () => {
  const client = await openClient()
  const buffered = await client.chat.completions.create(asked)
  const message = buffered.choices[0]!.message as OpenAI.ChatCompletionMessage & { reasoning_content?: string }
  assert.match(message.content!, /sandbox model/)
  assert.match(message.reasoning_content!, /I think/)
  assert.equal(buffered.id, `chatcmpl-${buffered._request_id!.slice('req_'.length)}`)
  assert.ok(buffered.usage!.completion_tokens_details!.reasoning_tokens! > 0)

  const seen = { text: '', reasoning: '', usage: undefined as OpenAI.CompletionUsage | undefined }
  const stream = await client.chat.completions.create({
    ...asked,
    stream: true,
    stream_options: { include_usage: true },
  })
  for await (const { choices, usage } of stream) {
    const delta = choices[0]?.delta as { content?: string; reasoning_content?: string } | undefined
    seen.text += delta?.content ?? ''
    seen.reasoning += delta?.reasoning_content ?? ''
    seen.usage = usage ?? seen.usage
  }
  assert.deepEqual(seen, { text: message.content, reasoning: message.reasoning_content, usage: buffered.usage })
})

test('the stream helper puts the same completion together', async () => {
  const client = await openClient()
  const buffered = await client.chat.completions.create(asked)
  const streamed = await client.chat.completions.stream(asked).finalChatCompletion()
  assert.equal(streamed.choices[0]!.message.content, buffered.choices[0]!.message.content)
  assert.equal(streamed.choices[0]!.finish_reason, 'stop')
})

const weatherTool = zodFunction({
  name: 'get_weather',
  description: weatherDescription,
  parameters: Weather,
  function: weatherIn,
})

for (const stream of [false, true] as const) {
  test(`parallel tool calls are run and answered, ${stream ? 'streamed' : 'buffered'}`, async () => {
    const client = await openClient()
    const body = { model, messages: [user(callWeatherThrice)], tools: [weatherTool] }
    const runner = stream
      ? client.chat.completions.runTools({ ...body, stream })
      : client.chat.completions.runTools({ ...body, stream })
    const answer = await runner.finalContent()
    const results = runner.messages.filter((message) => message.role === 'tool').map(({ content }) => content)
    assert.deepEqual(
      results,
      cities.map((city) => weatherIn({ city })),
    )
    for (const result of results) assert.ok(answer!.includes(String(result)), answer!)
    assert.deepEqual(suite.statuses, [200, 200])
  })
}

test('structured output is parsed into the schema’s own type, buffered and streamed', async () => {
  const client = await openClient()
  const body = { ...asked, response_format: zodResponseFormat(Forecast, 'forecast') }
  const buffered = await client.chat.completions.parse(body)
  const streamed = await client.chat.completions.stream(body).finalChatCompletion()
  const forecast = buffered.choices[0]!.message.parsed!
  assert.deepEqual(Forecast.parse(forecast), forecast)
  assert.deepEqual(streamed.choices[0]!.message.parsed, forecast)
})

test('a refusal is a refusal, not text', async () => {
  const client = await openClient()
  const body = { model, messages: [user(refuse)] }
  const buffered = await client.chat.completions.create(body)
  const streamed = await client.chat.completions.stream(body).finalChatCompletion()
  for (const { message, finish_reason } of [buffered.choices[0]!, streamed.choices[0]!]) {
    assert.deepEqual([message.content || null, message.refusal, finish_reason], [null, refusal, 'stop'])
  }
})

test('the model list can be read, and one model too', async () => {
  const client = new OpenAI({ baseURL: suite.baseUrl, apiKey: 'none' })
  const models = await Array.fromAsync(client.models.list())
  assert.equal(models.length, 5)
  assert.deepEqual(
    await client.models.retrieve(model),
    models.find(({ id }) => id === model),
  )
})

const streamings = [{ stream: false as boolean }, { stream: true as boolean }]

test('a bad key is an AuthenticationError, an empty balance an APIError of status 402; neither is tried again', async () => {
  for (const streaming of streamings) {
    const stranger = new OpenAI({ baseURL: suite.baseUrl, apiKey: 'penny_nobody' })
    await assert.rejects(
      stranger.chat.completions.create({ ...asked, ...streaming }),
      (error) => error instanceof OpenAI.AuthenticationError && error.code === 'invalid_api_key' && hasId(error),
    )
    const poor = await openClient('0')
    await assert.rejects(
      poor.chat.completions.create({ ...asked, ...streaming }),
      (error) =>
        error instanceof OpenAI.APIError &&
        error.status === 402 &&
        error.code === 'insufficient_balance' &&
        error.type === 'payment_required' &&
        hasId(error),
    )
  }
  assert.deepEqual(suite.statuses, [401, 402, 401, 402])
})

function hasId(error: InstanceType<typeof OpenAI.APIError>): boolean {
  return error.requestID === suite.exchanges.at(-1)!.headers['x-router-request-id']
}

test('an unknown model is a NotFoundError, a wrong parameter a BadRequestError; both say where', async () => {
  const client = await openClient()
  await assert.rejects(
    client.chat.completions.create({ ...asked, model: 'gpt-0' }),
    (error) => error instanceof OpenAI.NotFoundError && error.code === 'model_not_found' && error.param === 'model',
  )
  await assert.rejects(
    client.chat.completions.create({ ...asked, n: 2 }),
    (error) => error instanceof OpenAI.BadRequestError && error.param === 'n' && hasId(error),
  )
  assert.deepEqual(suite.statuses, [404, 400])
})

test('with too much in flight a RateLimitError asks to be retried, and the retry succeeds once money is free', async () => {
  const account = await suite.openAccount()
  const client = clientOf(account)
  const full = await suite.fillCap(account)
  await assert.rejects(
    client.chat.completions.create(asked, { maxRetries: 0 }),
    (error) =>
      error instanceof OpenAI.RateLimitError &&
      error.code === 'in_flight_cap' &&
      error.headers.get('x-should-retry') === 'true',
  )
  const refused = suite.next(429)
  const answer = client.chat.completions.create(asked)
  await refused
  await full.release()
  assert.equal((await answer).choices[0]!.finish_reason, 'stop')
  assert.deepEqual([...new Set(suite.statuses)], [429, 200])
})

test('a quote above the cap is not tried again', async () => {
  const client = await openClient()
  const body = { ...asked, model: 'gpt-6-astra', max_tokens: 100_000 }
  await assert.rejects(
    client.chat.completions.create(body),
    (error) => error instanceof OpenAI.RateLimitError && error.code === 'quote_exceeds_cap',
  )
  assert.deepEqual(suite.statuses, [429])
})

test('an upstream that is down is an InternalServerError; one that fails midway is raised after what was said', async () => {
  const client = await openClient()
  await assert.rejects(
    client.chat.completions.create({ model, messages: [user(upstreamDown)] }, { maxRetries: 0 }),
    (error) => error instanceof OpenAI.InternalServerError && error.code === 'upstream_error' && hasId(error),
  )
  let text = ''
  const stream = await client.chat.completions.create({ model, messages: [user(failMidway)], stream: true })
  await assert.rejects(
    async () => {
      for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? ''
    },
    (error) => error instanceof OpenAI.APIError && error.code === 'upstream_error' && error.type === 'server_error',
  )
  assert.match(text, /sandbox model/)
  assert.equal(suite.exchanges.length, 2)
})

test('leaving a stream ends the request, charged for what was written', async () => {
  const account = await suite.openAccount()
  const client = clientOf(account)
  const { data: stream, request_id } = await client.chat.completions
    .create({ model, messages: [user(stallMidway)], stream: true })
    .withResponse()
  for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break
  const row = await suite.ended(account, request_id!)
  assert.equal(row.status, 'cancelled')
  assert.ok(Number(row.charged_atomic) > 0)
})

test('an aborted request is an APIUserAbortError, and free when nothing was written', async () => {
  const account = await suite.openAccount()
  const abort = new AbortController()
  const options = { signal: abort.signal }
  const answer = clientOf(account).chat.completions.create({ model, messages: [user(staySilent)] }, options)
  const requestId = await suite.heldRequest(account)
  abort.abort()
  await assert.rejects(answer, OpenAI.APIUserAbortError)
  const row = await suite.ended(account, requestId)
  assert.deepEqual([row.status, row.charged_atomic], ['cancelled', '0'])
})
