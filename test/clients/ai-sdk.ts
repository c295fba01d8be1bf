import assert from 'node:assert/strict'
import { test } from 'node:test'
import { APICallError, generateText, isStepCount, type LanguageModel, Output, streamText, tool } from 'ai'
import { type ClientSuite, model } from './client-suite.ts'
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

/** Makes the provider's chat model for a key. */
export type ModelOf = (apiKey: string, model: string) => LanguageModel

// Both providers of the AI SDK must do all of this; what only one of them reads is tested in its own file.
export function testAiSdk(suite: ClientSuite, modelOf: ModelOf): void {
  const of = ({ apiKey }: { readonly apiKey: string }, id = model) => modelOf(apiKey, id)
  const open = async (balance?: string) => of(await suite.openAccount(balance))
  // Without a handler the SDK writes errors of streams to the console.
  const onError = () => {}

  test('text and usage are the same buffered and streamed', async () => {
    const options = { model: await open(), prompt: question }
    const buffered = await generateText(options)
    const streamed = streamText(options)
    assert.match(buffered.text, /sandbox model/)
    assert.ok(buffered.usage.outputTokenDetails.reasoningTokens! > 0)
    assert.equal(buffered.finishReason, 'stop')
    assert.equal(await streamed.text, buffered.text)
    assert.equal(await streamed.finishReason, buffered.finishReason)
    assert.deepEqual(counts(await streamed.usage), counts(buffered.usage))
    const { id, modelId } = await streamed.response
    assert.deepEqual([id.slice(0, 9), modelId], ['chatcmpl-', model])
  })

  test('parallel tool calls are run and answered, buffered and streamed', async () => {
    const get_weather = tool({
      description: weatherDescription,
      inputSchema: Weather,
      execute: async (input) => weatherIn(input),
    })
    const options = { model: await open(), prompt: callWeatherThrice, tools: { get_weather }, stopWhen: isStepCount(3) }
    const buffered = await generateText(options)
    const streamed = streamText(options)
    const steps = [buffered.steps, await streamed.steps]
    for (const [first, second, ...rest] of steps) {
      const expected = cities.map((city) => weatherIn({ city }))
      assert.deepEqual(
        first!.toolResults.map(({ output }) => output),
        expected,
      )
      assert.equal(first!.finishReason, 'tool-calls')
      for (const result of expected) assert.ok(second!.text.includes(result), second!.text)
      assert.equal(rest.length, 0)
    }
    assert.deepEqual(suite.statuses, [200, 200, 200, 200])
  })

  test('structured output has the schema’s own type, buffered and streamed', async () => {
    const options = { model: await open(), prompt: question, output: Output.object({ schema: Forecast }) }
    const buffered = await generateText(options)
    assert.deepEqual(Forecast.parse(buffered.output), buffered.output)
    assert.deepEqual(await streamText(options).output, buffered.output)
    const formats = suite.exchanges.map(({ requestBody }) => requestBody.response_format as { type: string })
    assert.deepEqual(
      formats.map(({ type }) => type),
      ['json_schema', 'json_schema'],
    )
  })

  test('a refusal ends as filtered content, and its words are not lost', async () => {
    const options = { model: await open(), prompt: refuse }
    const buffered = await generateText(options)
    const streamed = streamText(options)
    assert.deepEqual([buffered.text, buffered.finishReason], [refusal, 'content-filter'])
    assert.deepEqual([await streamed.text, await streamed.finishReason], [refusal, 'content-filter'])
  })

  const failures = [
    { title: 'a bad key', modelFor: async () => of({ apiKey: 'penny_nobody' }), status: 401, code: 'invalid_api_key' },
    { title: 'an empty balance', modelFor: () => open('0'), status: 402, code: 'insufficient_balance' },
    {
      title: 'an unknown model',
      modelFor: async () => of(await suite.openAccount(), 'gpt-0'),
      status: 404,
      code: 'model_not_found',
    },
  ]
  for (const { title, modelFor, status, code } of failures) {
    test(`${title} is an APICallError of status ${status}, and is not tried again`, async () => {
      const options = { model: await modelFor(), prompt: question }
      await assert.rejects(generateText(options), (error) => isCallError(error, status, code))
      assert.ok(isCallError(await errorOf(streamText({ ...options, onError })), status, code))
      assert.deepEqual(suite.statuses, [status, status])
    })
  }

  function isCallError(error: unknown, status: number, code: string): boolean {
    return (
      APICallError.isInstance(error) &&
      error.statusCode === status &&
      (error.data as { error: { code: string } }).error.code === code &&
      /^req_[0-9a-f]{32}$/.test(error.responseHeaders!['x-request-id']!)
    )
  }

  test('with too much in flight the SDK retries by itself, and succeeds once money is free', async () => {
    const account = await suite.openAccount()
    const full = await suite.fillCap(account)
    const options = { model: of(account), prompt: question }
    await assert.rejects(generateText({ ...options, maxRetries: 0 }), (error) =>
      isCallError(error, 429, 'in_flight_cap'),
    )
    const refused = suite.next(429)
    const answer = generateText(options)
    await refused
    await full.release()
    assert.equal((await answer).finishReason, 'stop')
    assert.deepEqual([...new Set(suite.statuses)], [429, 200])
  })

  test('an upstream that is down is an APICallError; one that fails midway is raised after the output so far', async () => {
    const options = { model: await open(), maxRetries: 0 }
    await assert.rejects(generateText({ ...options, prompt: upstreamDown }), (error) =>
      isCallError(error, 502, 'upstream_error'),
    )
    const streamed = streamText({ ...options, prompt: failMidway, onError })
    let text = ''
    let failure: unknown
    for await (const part of streamed.stream) {
      if (part.type === 'text-delta') text += part.text
      if (part.type === 'error') failure = part.error
    }
    assert.match(text, /sandbox model/)
    assert.match(JSON.stringify(failure), /upstream_error/)
    assert.equal(suite.exchanges.length, 2)
  })

  test('leaving a stream ends the request, charged for what was written', async () => {
    const account = await suite.openAccount()
    const abort = new AbortController()
    const options = { model: of(account), prompt: stallMidway, abortSignal: abort.signal, onError }
    let aborted = false
    for await (const part of streamText(options).stream) {
      if (part.type === 'text-delta') abort.abort()
      if (part.type === 'abort') aborted = true
    }
    assert.ok(aborted)
    const row = await suite.ended(account, suite.exchanges[0]!.headers['x-router-request-id']!)
    assert.equal(row.status, 'cancelled')
    assert.ok(Number(row.charged_atomic) > 0)
  })

  test('an aborted request is an AbortError, and free when nothing was written', async () => {
    const account = await suite.openAccount()
    const abort = new AbortController()
    const answer = generateText({ model: of(account), prompt: staySilent, abortSignal: abort.signal })
    const requestId = await suite.heldRequest(account)
    abort.abort()
    await assert.rejects(answer, { name: 'AbortError' })
    const row = await suite.ended(account, requestId)
    assert.deepEqual([row.status, row.charged_atomic], ['cancelled', '0'])
  })
}

async function errorOf(result: { readonly stream: AsyncIterable<{ type: string }> }): Promise<unknown> {
  for await (const part of result.stream) if (part.type === 'error') return (part as { error?: unknown }).error
  return undefined
}

function counts({
  inputTokens,
  outputTokens,
  totalTokens,
}: Partial<Record<'inputTokens' | 'outputTokens' | 'totalTokens', number | undefined>>) {
  return { inputTokens, outputTokens, totalTokens }
}
