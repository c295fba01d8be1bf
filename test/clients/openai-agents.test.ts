import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Agent, ModelRefusalError, OpenAIProvider, Runner, tool, type Usage } from '@openai/agents'
import OpenAI, {
  APIError,
  APIUserAbortError,
  AuthenticationError,
  type ClientOptions,
  InternalServerError,
  NotFoundError,
  RateLimitError,
} from 'openai'
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
  Weather,
  weatherDescription,
  weatherIn,
} from './conversations.ts'

const suite = clientSuite()

/** A runner on chat completions whose traces go nowhere. */
function runnerOf({ apiKey }: { readonly apiKey: string }, options: ClientOptions = {}): Runner {
  const openAIClient = new OpenAI({ apiKey, baseURL: suite.baseUrl, ...options })
  const modelProvider = new OpenAIProvider({ openAIClient, useResponses: false })
  return new Runner({ modelProvider, tracingDisabled: true })
}

async function openRunner(balance?: string): Promise<Runner> {
  return runnerOf(await suite.openAccount(balance))
}

const agent = new Agent({ name: 'Penny', instructions: 'Answer briefly.', model })
// The library asks for none of it unless told otherwise.
const thinker = agent.clone({ modelSettings: { reasoning: { effort: 'low' } } })

test('text, reasoning and usage are the same buffered and streamed', async () => {
  const runner = await openRunner()
  const buffered = await runner.run(thinker, question)
  const streamed = await runner.run(thinker, question, { stream: true })
  let text = ''
  for await (const piece of streamed.toTextStream()) text += piece
  await streamed.completed
  assert.match(buffered.finalOutput!, /sandbox model/)
  assert.deepEqual([text, streamed.finalOutput], [buffered.finalOutput, buffered.finalOutput])
  for (const { newItems, rawResponses } of [buffered, streamed]) {
    const [thought] = newItems.filter((item) => item.type === 'reasoning_item')
    assert.match(JSON.stringify(thought?.rawItem), /I think/)
    assert.match(rawResponses[0]!.responseId!, /^chatcmpl-/)
    assert.match(rawResponses[0]!.requestId!, /^req_/)
  }
  const [first, second] = [buffered, streamed].map(({ rawResponses }) => countsOf(rawResponses[0]!.usage))
  assert.ok(first!.outputTokens > 0)
  assert.deepEqual(second, first)
})

function countsOf({ inputTokens, outputTokens, totalTokens }: Usage) {
  return { inputTokens, outputTokens, totalTokens }
}

const weather = tool({
  name: 'get_weather',
  description: weatherDescription,
  parameters: Weather,
  execute: async (input) => weatherIn(input),
})

test('parallel tool calls are run and answered, buffered and streamed', async () => {
  const runner = await openRunner()
  const forecaster = agent.clone({ tools: [weather] })
  const buffered = await runner.run(forecaster, callWeatherThrice)
  const streamed = await runner.run(forecaster, callWeatherThrice, { stream: true })
  await streamed.completed
  for (const { newItems, finalOutput } of [buffered, streamed]) {
    const outputs = newItems.filter((item) => item.type === 'tool_call_output_item').map(({ output }) => output)
    assert.deepEqual(
      outputs,
      cities.map((city) => weatherIn({ city })),
    )
    for (const output of outputs) assert.ok(finalOutput!.includes(String(output)), finalOutput!)
  }
  assert.deepEqual(suite.statuses, [200, 200, 200, 200])
})

test('structured output has the schema’s own type, buffered and streamed', async () => {
  const runner = await openRunner()
  const forecaster = new Agent({ name: 'Penny', model, outputType: Forecast })
  const buffered = await runner.run(forecaster, question)
  const streamed = await runner.run(forecaster, question, { stream: true })
  await streamed.completed
  assert.deepEqual(Forecast.parse(buffered.finalOutput), buffered.finalOutput)
  assert.deepEqual(streamed.finalOutput, buffered.finalOutput)
  const formats = suite.exchanges.map(({ requestBody }) => requestBody.response_format as { type: string })
  assert.ok(formats.every(({ type }) => type === 'json_schema'))
})

test('a refusal is a ModelRefusalError with the model’s words', async () => {
  const runner = await openRunner()
  const isRefusal = (error: unknown) => error instanceof ModelRefusalError && error.refusal === refusal
  await assert.rejects(runner.run(agent, refuse), isRefusal)
  await assert.rejects((await runner.run(agent, refuse, { stream: true })).completed, isRefusal)
})

const failures = [
  {
    title: 'a bad key',
    open: async () => runnerOf({ apiKey: 'penny_nobody' }),
    agent,
    kind: AuthenticationError,
    status: 401,
    code: 'invalid_api_key',
  },
  {
    title: 'an empty balance',
    open: () => openRunner('0'),
    agent,
    kind: APIError,
    status: 402,
    code: 'insufficient_balance',
  },
  {
    title: 'an unknown model',
    open: () => openRunner(),
    agent: agent.clone({ model: 'gpt-0' }),
    kind: NotFoundError,
    status: 404,
    code: 'model_not_found',
  },
]
for (const { title, open, agent: asked, kind, status, code } of failures) {
  test(`${title} is the OpenAI SDK’s ${kind.name} of status ${status}, and is not tried again`, async () => {
    const runner = await open()
    const isExpected = (error: unknown) =>
      error instanceof kind && error.status === status && error.code === code && /^req_/.test(error.requestID!)
    await assert.rejects(runner.run(asked, question), isExpected)
    await assert.rejects((await runner.run(asked, question, { stream: true })).completed, isExpected)
    assert.deepEqual(suite.statuses, [status, status])
  })
}

test('with too much in flight the runner’s client retries by itself, and succeeds once money is free', async () => {
  const account = await suite.openAccount()
  const full = await suite.fillCap(account)
  const refused = suite.next(429)
  const answer = runnerOf(account).run(agent, question)
  const { headers } = await refused
  assert.equal(headers['x-should-retry'], 'true')
  await full.release()
  assert.match((await answer).finalOutput!, /sandbox model/)
  assert.deepEqual([...new Set(suite.statuses)], [429, 200])
})

test('what is in flight for too long is a RateLimitError', async () => {
  const account = await suite.openAccount()
  const full = await suite.fillCap(account)
  await assert.rejects(
    runnerOf(account, { maxRetries: 0 }).run(agent, question),
    (error) => error instanceof RateLimitError && error.code === 'in_flight_cap',
  )
  await full.release()
})

test('an upstream that is down is an InternalServerError; one that fails midway is raised after what was said', async () => {
  const runner = runnerOf(await suite.openAccount(), { maxRetries: 0 })
  await assert.rejects(
    runner.run(agent, upstreamDown),
    (error) => error instanceof InternalServerError && error.code === 'upstream_error',
  )
  const streamed = await runner.run(agent, failMidway, { stream: true })
  let text = ''
  await assert.rejects(
    async () => {
      for await (const piece of streamed.toTextStream()) text += piece
    },
    (error) => error instanceof APIError && error.code === 'upstream_error',
  )
  await assert.rejects(streamed.completed, APIError)
  assert.match(text, /sandbox model/)
  assert.equal(suite.exchanges.length, 2)
})

test('leaving a stream ends the request, charged for what was written', async () => {
  const account = await suite.openAccount()
  const abort = new AbortController()
  const streamed = await runnerOf(account).run(agent, stallMidway, { stream: true, signal: abort.signal })
  for await (const _ of streamed.toTextStream()) abort.abort()
  const row = await suite.ended(account, await suite.heldRequest(account))
  assert.equal(row.status, 'cancelled')
  assert.ok(Number(row.charged_atomic) > 0)
})

test('an aborted request is an APIUserAbortError, and free when nothing was written', async () => {
  const account = await suite.openAccount()
  const abort = new AbortController()
  const answer = runnerOf(account).run(agent, staySilent, { signal: abort.signal })
  const requestId = await suite.heldRequest(account)
  abort.abort()
  await assert.rejects(answer, APIUserAbortError)
  const row = await suite.ended(account, requestId)
  assert.deepEqual([row.status, row.charged_atomic], ['cancelled', '0'])
})
