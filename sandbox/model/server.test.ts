import assert from 'node:assert/strict'
import { once } from 'node:events'
import { request as httpRequest } from 'node:http'
import { after, before, describe, test } from 'node:test'
import OpenAI, { APIError } from 'openai'
import type {
  FunctionTool,
  Response,
  ResponseCreateParamsNonStreaming,
  ResponseInputItem,
  ResponseStreamEvent,
} from 'openai/resources/responses/responses'
import { modelFailures } from '../client.ts'
import { type Answered, type ModelServer, startModelServer } from './server.ts'
import { countTokens } from './tokens.ts'

let server: ModelServer
let client: OpenAI
let onAnswered: (answered: Answered) => void = () => {}

before(async () => {
  server = await startModelServer({
    host: '127.0.0.1',
    port: 0,
    tokensPerSecond: 0,
    apiKey: 'sandbox-key',
    onAnswered: (answered) => onAnswered(answered),
  })
  client = new OpenAI({ baseURL: server.url, apiKey: 'sandbox-key', maxRetries: 0 })
})
after(() => server.close())

type Parameters = Partial<ResponseCreateParamsNonStreaming>

function ask(input: string | ResponseInputItem[], parameters: Parameters = {}): Promise<Response> {
  return client.responses.create({ model: 'gpt-5.6-terra', input, reasoning: { effort: 'none' }, ...parameters })
}

async function askStreamed(
  input: string | ResponseInputItem[],
  parameters: Parameters = {},
): Promise<ResponseStreamEvent[]> {
  const body = { model: 'gpt-5.6-terra', input, reasoning: { effort: 'none' as const }, ...parameters }
  return Array.fromAsync(await client.responses.create({ ...body, stream: true }))
}

function eventsOf<Type extends ResponseStreamEvent['type']>(events: readonly ResponseStreamEvent[], type: Type) {
  return events.filter((event): event is Extract<ResponseStreamEvent, { type: Type }> => event.type === type)
}

function callsOf(response: Response) {
  return response.output.filter((item) => item.type === 'function_call')
}

function nextAnswered(): Promise<Answered> {
  return new Promise((resolve) => {
    onAnswered = resolve
  })
}

const weather: FunctionTool = {
  type: 'function',
  name: 'getWeather',
  description: 'The forecast for a city.',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string' }, days: { type: 'integer', minimum: 2 } },
    required: ['city', 'days'],
  },
  strict: false,
}
const webSearch: FunctionTool = {
  type: 'function',
  name: 'web_search',
  parameters: { type: 'object', properties: { query: { type: 'string' } }, required: ['query'] },
  strict: false,
}
const webFetch: FunctionTool = {
  type: 'function',
  name: 'web_fetch',
  parameters: { type: 'object', properties: { url: { type: 'string' } }, required: ['url'] },
  strict: false,
}

describe('an answer', () => {
  test('says where it comes from, quotes the question, and is the same every time', async () => {
    const [first, second] = [await ask('What is money?'), await ask('What is money?')]
    assert.match(first.output_text, /^I am the Penny Router sandbox model\./)
    assert.match(first.output_text, /“What is money\?”/)
    assert.equal(first.output_text, second.output_text)
    assert.notEqual(first.id, second.id)
    assert.equal(first.usage?.output_tokens, countTokens(first.output_text))
    assert.ok(first.usage!.output_tokens >= 40 && first.usage!.output_tokens <= 120)
  })

  test('streamed has every event in order, numbered, and says what the buffered one says', async () => {
    const events = await askStreamed('What is money?')
    assert.deepEqual(
      events.map((event) => event.type).filter((type, index, types) => type !== types[index - 1]),
      [
        'response.created',
        'response.in_progress',
        'response.output_item.added',
        'response.content_part.added',
        'response.output_text.delta',
        'response.output_text.done',
        'response.content_part.done',
        'response.output_item.done',
        'response.completed',
      ],
    )
    assert.deepEqual(
      events.map((event) => event.sequence_number),
      [...events.keys()],
    )
    const text = eventsOf(events, 'response.output_text.delta')
      .map((event) => event.delta)
      .join('')
    const buffered = await ask('What is money?')
    assert.equal(text, buffered.output_text)
    assert.deepEqual(eventsOf(events, 'response.completed')[0]!.response.usage, buffered.usage)
    assert.equal(eventsOf(events, 'response.output_text.done')[0]!.text, text)
  })

  test('stops exactly at max_output_tokens and says so', async () => {
    for (const effort of ['none', 'low', 'high'] as const) {
      const parameters = { max_output_tokens: 40, reasoning: { effort, summary: 'auto' as const } }
      const events = await askStreamed('Tell me all about it, at length.', parameters)
      const { response } = eventsOf(events, 'response.incomplete')[0]!
      assert.deepEqual(response.incomplete_details, { reason: 'max_output_tokens' })
      assert.equal(response.usage?.output_tokens, 40)
      const deltas = events.filter((event) => event.type.endsWith('.delta'))
      assert.equal(deltas.length, 40)
    }
  })

  test('counts instructions, messages, tools and schemas as input, like the endpoint that only counts', async () => {
    const input = [{ role: 'user' as const, content: 'Hello there' }]
    const parameters = { instructions: 'Be brief.', tools: [weather], tool_choice: 'none' as const }
    const response = await ask(input, parameters)
    const expected =
      countTokens('Hello there') + countTokens('Be brief.') + countTokens(JSON.stringify([weather])) + 3 + 3
    assert.equal(response.usage?.input_tokens, expected)
    const counted = await client.responses.inputTokens.count({ model: 'gpt-5.6-terra', input, ...parameters })
    assert.deepEqual(counted, { object: 'response.input_tokens', input_tokens: expected })
  })

  test('reports what a growing conversation repeats as cached, in steps of 128 tokens', async () => {
    const long: ResponseInputItem = { role: 'user', content: 'one two three four '.repeat(300) }
    const parameters = { prompt_cache_key: 'conversation' }
    const first = await ask([long], parameters)
    assert.equal(first.usage?.input_tokens_details.cached_tokens, 0)
    const next: ResponseInputItem[] = [long, { role: 'assistant', content: 'Yes.' }, { role: 'user', content: 'And?' }]
    const second = await ask(next, parameters)
    assert.equal(second.usage?.input_tokens_details.cached_tokens, Math.floor(first.usage!.input_tokens / 128) * 128)
    const other = await ask([{ role: 'user', content: 'Something else.' }, ...next], parameters)
    assert.equal(other.usage?.input_tokens_details.cached_tokens, 0)
    assert.equal((await ask(next)).usage?.input_tokens_details.cached_tokens, 0)
  })
})

describe('reasoning', () => {
  test('costs more tokens with more effort, and none without', async () => {
    const tokens: number[] = []
    for (const effort of ['none', 'minimal', 'low', 'medium', 'high', 'xhigh'] as const) {
      const { usage } = await ask('Think about it.', { reasoning: { effort } })
      tokens.push(usage!.output_tokens_details.reasoning_tokens)
    }
    assert.deepEqual(tokens.slice(0, 2), [0, 0])
    assert.ok(tokens.slice(2).every((count, index, counts) => count > (counts[index - 1] ?? 0)))
  })

  test('shows summaries only when asked, a delta a token, in parts', async () => {
    const hidden = await askStreamed('Think about it.', { reasoning: { effort: 'medium' } })
    assert.equal(eventsOf(hidden, 'response.reasoning_summary_text.delta').length, 0)
    const shown = await askStreamed('Think about it.', { reasoning: { effort: 'medium', summary: 'auto' } })
    const { usage, output } = eventsOf(shown, 'response.completed')[0]!.response
    const deltas = eventsOf(shown, 'response.reasoning_summary_text.delta')
    assert.equal(deltas.length, usage?.output_tokens_details.reasoning_tokens)
    assert.deepEqual([...new Set(deltas.map((event) => event.summary_index))], [0, 1])
    const item = output[0]!
    assert.ok(item.type === 'reasoning')
    assert.equal(item.summary.map((part) => part.text).join(''), deltas.map((event) => event.delta).join(''))
  })

  test('comes back sealed, and only the finished, unchanged seal is accepted', async () => {
    const parameters: Parameters = {
      reasoning: { effort: 'low' },
      include: ['reasoning.encrypted_content'],
      tools: [weather],
      store: false,
    }
    const question: ResponseInputItem = { role: 'user', content: 'What is the weather in Oslo?' }
    const events = await askStreamed([question], parameters)
    const { output } = eventsOf(events, 'response.completed')[0]!.response
    const [reasoning, call] = output
    assert.ok(reasoning?.type === 'reasoning' && call?.type === 'function_call')
    const replay = (item: ResponseInputItem) =>
      ask([question, item, call, { type: 'function_call_output', call_id: call.call_id, output: 'Snow.' }], parameters)
    assert.match((await replay(reasoning)).output_text, /Snow\./)

    const early = eventsOf(events, 'response.output_item.added')[0]!.item as typeof reasoning
    const sealed = reasoning.encrypted_content!
    const changed = `${sealed[0] === 'A' ? 'B' : 'A'}${sealed.slice(1)}`
    const forgeries = [early.encrypted_content!, `${sealed}=`, sealed.slice(1), changed, '']
    for (const encrypted_content of forgeries) {
      await assert.rejects(replay({ ...reasoning, encrypted_content }), {
        status: 400,
        code: 'invalid_encrypted_content',
      })
    }
    await assert.rejects(replay({ ...reasoning, id: 'rs_other' }), { status: 400 })
    const { encrypted_content: _, ...unsealed } = reasoning
    await assert.rejects(replay(unsealed), { status: 404 })
  })
})

describe('tools', () => {
  test('are called when the question shares a word with them, with arguments that obey their schema', async () => {
    const response = await ask('What will the weather be in Oslo?', { tools: [webSearch, weather] })
    const [call, ...others] = callsOf(response)
    assert.equal(others.length, 0)
    assert.equal(call?.name, 'getWeather')
    assert.deepEqual(JSON.parse(call.arguments), { city: 'What will the weather be in Oslo?', days: 2 })
    assert.equal(callsOf(await ask('Good morning!', { tools: [webSearch, weather] })).length, 0)
  })

  test('of several kinds are called in parallel, unless that is off', async () => {
    const question = 'Search for it and fetch https://example.org/page.'
    const parallel = callsOf(await ask(question, { tools: [webSearch, webFetch, weather] }))
    assert.deepEqual(
      parallel.map((call) => call.name),
      ['web_search', 'web_fetch'],
    )
    assert.deepEqual(JSON.parse(parallel[0]!.arguments), { query: question })
    assert.deepEqual(JSON.parse(parallel[1]!.arguments), { url: 'https://example.org/page.' })
    assert.equal(callsOf(await ask(question, { tools: [webSearch, webFetch], parallel_tool_calls: false })).length, 1)
  })

  test('are called or left alone as tool_choice says', async () => {
    const tools = [webSearch, weather]
    const called = async (tool_choice: Parameters['tool_choice']) =>
      callsOf(await ask('Search the weather', { tools, tool_choice: tool_choice! })).map((call) => call.name)
    assert.deepEqual(await called('none'), [])
    assert.deepEqual(await called('required'), ['web_search', 'getWeather'])
    assert.deepEqual(await called({ type: 'function', name: 'getWeather' }), ['getWeather'])
    const allowed = {
      type: 'allowed_tools' as const,
      mode: 'auto' as const,
      tools: [{ type: 'function', name: 'web_search' }],
    }
    assert.deepEqual(await called(allowed), ['web_search'])
    assert.equal(callsOf(await ask('Hi', { tools, tool_choice: 'required' })).length, 1)
  })

  test('stream their arguments under the id of their item', async () => {
    const events = await askStreamed('Search', { tools: [webSearch] })
    const added = eventsOf(events, 'response.output_item.added')[0]!
    assert.ok(added.item.type === 'function_call')
    const deltas = eventsOf(events, 'response.function_call_arguments.delta')
    assert.ok(deltas.length > 1 && deltas.every((event) => event.item_id === added.item.id))
    const done = eventsOf(events, 'response.function_call_arguments.done')[0]!
    assert.equal(deltas.map((event) => event.delta).join(''), done.arguments)
  })

  test('of the web are used as they are meant: searched, the first page read, both cited', async () => {
    const tools = [webSearch, webFetch]
    const question = { role: 'user' as const, content: 'Search the web for pennies.' }
    const results =
      '1. The penny\nURL: https://example.org/penny\nA coin.\n\n2. The cent\nURL: https://example.org/cent\nAnother.'
    const [search] = callsOf(await ask([question], { tools }))
    assert.deepEqual([search?.name, search?.arguments], ['web_search', '{"query":"pennies"}'])
    const found = [
      question,
      search!,
      { type: 'function_call_output' as const, call_id: search!.call_id, output: results },
    ]
    const [fetch] = callsOf(await ask(found, { tools }))
    assert.deepEqual([fetch?.name, fetch?.arguments], ['web_fetch', '{"url":"https://example.org/penny"}'])
    const page = 'Title: All about pennies\nURL: https://example.org/penny\n\nA penny is a coin.'
    const read = [...found, fetch!, { type: 'function_call_output' as const, call_id: fetch!.call_id, output: page }]
    const answer = (await ask(read, { tools })).output_text
    assert.match(answer, /\[All about pennies\]\(https:\/\/example\.org\/penny\).*\[The cent\]/)
    assert.equal(callsOf(await ask('What does https://example.org/ say of pennies?', { tools })).length, 0)
  })

  test('that have answered are quoted', async () => {
    const response = await ask(
      [
        { role: 'user', content: 'Search for the weather' },
        { type: 'function_call', call_id: 'call_1', name: 'web_search', arguments: '{}' },
        { type: 'function_call_output', call_id: 'call_1', output: [{ type: 'input_text', text: 'It rains frogs.' }] },
      ],
      { tools: [webSearch] },
    )
    assert.match(response.output_text, /“It rains frogs\.”/)
  })
})

describe('structured output', () => {
  test('is a JSON object in JSON mode', async () => {
    const { output_text } = await ask('Answer in JSON', { text: { format: { type: 'json_object' } } })
    assert.equal(typeof JSON.parse(output_text), 'object')
  })

  test('obeys the schema', async () => {
    const schema = {
      type: 'object',
      properties: {
        title: { type: 'string', maxLength: 5 },
        tags: { type: 'array', items: { enum: ['a', 'b'] }, minItems: 2 },
      },
      required: ['title', 'tags'],
      additionalProperties: false,
    }
    const { output_text } = await ask('Summarise this', {
      text: { format: { type: 'json_schema', name: 'summary', schema } },
    })
    assert.deepEqual(JSON.parse(output_text), { title: 'Summa', tags: ['a', 'b'] })
  })
})

describe('a request is refused in the upstream’s words:', () => {
  const call: ResponseInputItem = { type: 'function_call', call_id: 'call_1', name: 'f', arguments: '{}' }
  const output: ResponseInputItem = { type: 'function_call_output', call_id: 'call_1', output: 'x' }
  const user: ResponseInputItem = { role: 'user', content: 'hi' }
  const cases: [
    string,
    string | ResponseInputItem[],
    object,
    { status: number; code?: string | null; param?: string; message?: RegExp },
  ][] = [
    ['unknown parameter', 'hi', { max_tokens: 5 }, { status: 400, code: 'unknown_parameter', param: 'max_tokens' }],
    ['too few output tokens', 'hi', { max_output_tokens: 15 }, { status: 400, code: 'integer_below_min_value' }],
    [
      'call without output',
      [user, call],
      {},
      { status: 400, message: /No tool output found for function call call_1/ },
    ],
    [
      'output without call',
      [user, output],
      {},
      { status: 400, message: /No tool call found for function call output/ },
    ],
    ['output before its call', [user, output, call], {}, { status: 400 }],
    [
      'JSON mode without the word',
      'hi',
      { text: { format: { type: 'json_object' } } },
      { status: 400, message: /'json'/ },
    ],
    [
      'JSON only in instructions',
      'hi',
      { instructions: 'JSON', text: { format: { type: 'json_object' } } },
      { status: 400 },
    ],
    ['wrong type', 'hi', { stream_options: {}, parallel_tool_calls: 'yes' }, { status: 400, code: 'invalid_type' }],
    ['wrong effort', 'hi', { reasoning: { effort: 'huge' } }, { status: 400, param: 'reasoning.effort' }],
    ['long call id', [{ ...call, call_id: 'c'.repeat(65) }], {}, { status: 400, code: 'string_above_max_length' }],
    [
      'user text typed as output',
      [{ role: 'user', content: [{ type: 'output_text', text: 'x' }] } as never],
      {},
      { status: 400, param: 'input[0].content[0].type' },
    ],
    ['stored items', [{ type: 'item_reference', id: 'rs_1' }], {}, { status: 404 }],
    ['stored response', 'hi', { previous_response_id: 'resp_1' }, { status: 400, code: 'previous_response_not_found' }],
    ['required tool without tools', 'hi', { tool_choice: 'required' }, { status: 400, param: 'tool_choice' }],
    ['unknown tool chosen', 'hi', { tools: [weather], tool_choice: { type: 'function', name: 'x' } }, { status: 400 }],
    ['no input', [], {}, { status: 400, code: 'missing_required_parameter', param: 'input' }],
    ['no model', 'hi', { model: null }, { status: 400, code: 'missing_required_parameter', param: 'model' }],
  ]
  for (const [name, input, parameters, expected] of cases) {
    test(name, async () => {
      await assert.rejects(ask(input, parameters), expected)
      await assert.rejects(askStreamed(input, parameters), expected)
    })
  }

  test('wrong or missing key', async () => {
    const stranger = new OpenAI({ baseURL: server.url, apiKey: 'wrong', maxRetries: 0 })
    await assert.rejects(stranger.models.list(), { status: 401, code: 'invalid_api_key' })
    assert.equal((await fetch(`${server.url}/models`)).status, 401)
  })

  test('unknown path, broken JSON, a body that is too large', async () => {
    const headers = { authorization: 'Bearer sandbox-key' }
    const post = (path: string, body: string) => fetch(`${server.url}${path}`, { method: 'POST', headers, body })
    assert.equal((await post('/completions', '{}')).status, 404)
    for (const body of ['{', '[]', 'null', '']) assert.equal((await post('/responses', body)).status, 400)
    const response = await post('/responses', 'x'.repeat(33 * 1024 * 1024))
    assert.equal(response.status, 413)
    const { error } = (await response.json()) as { error: { type: string } }
    assert.equal(error.type, 'invalid_request_error')
  })
})

test('the models are listed', async () => {
  const ids = (await Array.fromAsync(await client.models.list())).map((model) => model.id)
  assert.ok(ids.includes('gpt-5.6-terra'))
})

describe('production', () => {
  test('stops when the client goes away', { timeout: 30_000 }, async () => {
    const answered = Promise.withResolvers<Answered>()
    const slow = await startModelServer({
      host: '127.0.0.1',
      port: 0,
      tokensPerSecond: 500,
      onAnswered: answered.resolve,
    })
    const slowClient = new OpenAI({ baseURL: slow.url, apiKey: 'any', maxRetries: 0 })
    const stream = await slowClient.responses.create({ model: 'm', input: '[sandbox:tokens 100000]', stream: true })
    for await (const event of stream) if (event.type === 'response.output_text.delta') break
    const { ending, outputTokens } = await answered.promise
    assert.equal(ending, 'aborted')
    assert.ok(outputTokens < 100_000)
    await slow.close()
  })

  test('waits for a client that does not read', { timeout: 30_000 }, async () => {
    const answered = nextAnswered()
    const headers = { authorization: 'Bearer sandbox-key' }
    const request = httpRequest(`${server.url}/responses`, { method: 'POST', headers })
    request.end(
      JSON.stringify({ model: 'm', input: '[sandbox:tokens 1000000]', stream: true, reasoning: { effort: 'none' } }),
    )
    const [response] = await once(request, 'response')
    // The answer has some 200 MB, more than all buffers on the way: without backpressure it would be fully produced by now.
    await once(response, 'readable')
    response.destroy()
    const { ending, outputTokens } = await answered
    assert.equal(ending, 'aborted')
    assert.ok(outputTokens < 1_000_000)
  })

  test('ends immediately when the server closes', { timeout: 30_000 }, async () => {
    const answered = Promise.withResolvers<Answered>()
    const closing = await startModelServer({
      host: '127.0.0.1',
      port: 0,
      tokensPerSecond: 10,
      onAnswered: answered.resolve,
    })
    const closingClient = new OpenAI({ baseURL: closing.url, apiKey: 'any', maxRetries: 0 })
    const stream = await closingClient.responses.create({ model: 'm', input: '[sandbox:tokens 100000]', stream: true })
    await closing.close()
    await assert.rejects(Array.fromAsync(stream))
    assert.equal((await answered.promise).ending, 'aborted')
  })

  test('keeps its pace for buffered answers too', { timeout: 30_000 }, async () => {
    const paced = await startModelServer({ host: '127.0.0.1', port: 0, tokensPerSecond: 2000, timeToFirstTokenMs: 5 })
    const pacedClient = new OpenAI({ baseURL: paced.url, apiKey: 'any', maxRetries: 0 })
    const response = await pacedClient.responses.create({
      model: 'm',
      input: '[sandbox:tokens 100]',
      reasoning: { effort: 'none' },
    })
    assert.equal(response.usage?.output_tokens, 100)
    await paced.close()
  })
})

test('errors carry a request id', async () => {
  const error = await ask('hi', { max_output_tokens: 1 }).catch((reason: unknown) => reason)
  assert.ok(error instanceof APIError)
  assert.match(error.requestID ?? '', /^req_/)
})

test('chat completions are the same answers in the other protocol: text, reasoning, calls, usage and the end', async () => {
  const ask = (content: string, more: object = {}) =>
    client.chat.completions.create({
      model: 'gpt-5.6-terra',
      messages: [{ role: 'user', content }],
      stream: true,
      stream_options: { include_usage: true },
      ...more,
    })
  const chunks = await Array.fromAsync(await ask('[sandbox:say "A coin."]', { reasoning_effort: 'low' }))
  const deltas = chunks.flatMap(({ choices }) => choices.map(({ delta }) => delta as Record<string, unknown>))
  assert.equal(deltas.map(({ content = '' }) => content).join(''), 'A coin.')
  assert.ok(deltas.some(({ reasoning_content: reasoning }) => typeof reasoning === 'string'))
  const usage = chunks.at(-1)?.usage
  assert.ok(usage && usage.prompt_tokens > 0 && usage.total_tokens === usage.prompt_tokens + usage.completion_tokens)
  assert.equal(chunks.at(-2)?.choices[0]?.finish_reason, 'stop')

  const tools = [{ type: 'function', function: { name: weather.name, parameters: weather.parameters } }]
  const calls = await Array.fromAsync(await ask('[sandbox:call getWeather {"city":"Paris"}]', { tools }))
  const parts = calls.flatMap(({ choices }) => choices.flatMap(({ delta }) => delta.tool_calls ?? []))
  assert.equal(parts[0]?.function?.name, weather.name)
  assert.equal(parts.map((part) => part.function?.arguments ?? '').join(''), '{"city":"Paris"}')
  assert.equal(calls.at(-2)?.choices[0]?.finish_reason, 'tool_calls')
  const cut = await Array.fromAsync(await ask('[sandbox:tokens 100]', { max_tokens: 16, reasoning_effort: 'none' }))
  assert.equal(cut.at(-2)?.choices[0]?.finish_reason, 'length')
  await assert.rejects(Array.fromAsync(await ask('[sandbox:fail-after 3]')), APIError)
  await assert.rejects(ask('Hi', { unheard_of: true }), { status: 400 })
})

test('a delay of the next answer delays one; a lasting delay lasts until it is reset', async () => {
  const delayMs = async () => {
    const answered = nextAnswered()
    await ask('hi')
    return (await answered).delayMs
  }
  server.trouble.slowNext(3)
  assert.deepEqual([await delayMs(), await delayMs()], [3, 0])
  server.trouble.slow(2)
  server.trouble.slowNext(3)
  assert.deepEqual([await delayMs(), await delayMs(), await delayMs()], [5, 2, 2])
  server.trouble.slow(0)
  assert.equal(await delayMs(), 0)
})

test('a server set to fail keeps failing until it is reset, and probes notice it', async () => {
  const outcome = async (path: string, body?: object, signal?: AbortSignal) => {
    const headers = { authorization: 'Bearer sandbox-key', connection: 'close' }
    const given = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }
    const answer = await fetch(`${server.url}${path}`, { headers, signal: signal ?? null, ...given }).catch(
      (error: Error) => error,
    )
    if (answer instanceof Error) return answer.name === 'TimeoutError' ? 'hang' : 'cut'
    return answer.status === 200 && (await answer.text()).startsWith('data: }{') ? 'garbage' : answer.status
  }
  const body = { model: 'gpt-5.6-terra', input: 'Hi', stream: true }
  const seen = []
  for (const failure of [...modelFailures, undefined]) {
    server.trouble.fail(failure)
    const isHanging = failure === 'hang'
    const asked = await outcome('/responses', body, isHanging ? AbortSignal.timeout(300) : undefined)
    seen.push([asked, isHanging ? 'hang' : await outcome('/models')])
  }
  assert.deepEqual(seen, [
    ['cut', 'cut'],
    ['hang', 'hang'],
    [429, 200],
    [500, 500],
    ['garbage', 200],
    [200, 200],
  ])
})
