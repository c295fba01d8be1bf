import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import OpenAI from 'openai'
import type {
  FunctionTool,
  Response,
  ResponseCreateParamsNonStreaming,
  ResponseInputItem,
  ResponseStreamEvent,
} from 'openai/resources/responses/responses'
import { readScript } from './directives.ts'
import { type Answered, type ModelServer, startModelServer } from './server.ts'
import { countTokens } from './tokens.ts'

let server: ModelServer
let client: OpenAI
let onAnswered: (answered: Answered) => void = () => {}

before(async () => {
  const options = { host: '127.0.0.1', port: 0, tokensPerSecond: 0 }
  server = await startModelServer({ ...options, onAnswered: (answered) => onAnswered(answered) })
  client = new OpenAI({ baseURL: server.url, apiKey: 'any', maxRetries: 0 })
})
after(() => server.close())

type Parameters = Partial<ResponseCreateParamsNonStreaming>

function ask(input: string | ResponseInputItem[], parameters: Parameters = {}): Promise<Response> {
  return client.responses.create({ model: 'm', input, reasoning: { effort: 'none' }, ...parameters })
}

/** All events until the stream ends, and how it ended. */
async function watch(
  input: string,
  parameters: Parameters = {},
): Promise<{ events: ResponseStreamEvent[]; error: unknown }> {
  const body = { model: 'm', input, reasoning: { effort: 'none' as const }, ...parameters }
  const events: ResponseStreamEvent[] = []
  try {
    for await (const event of await client.responses.create({ ...body, stream: true })) events.push(event)
    return { events, error: undefined }
  } catch (error) {
    return { events, error }
  }
}

function deltaCount(events: readonly ResponseStreamEvent[]): number {
  return events.filter((event) => event.type.endsWith('.delta')).length
}

function lastResponse(events: readonly ResponseStreamEvent[]): Response {
  const last = events.at(-1)
  assert.ok(last !== undefined && 'response' in last, `no terminal event but ${last?.type}`)
  return last.response
}

const tool: FunctionTool = { type: 'function', name: 'look_up', parameters: { type: 'object' }, strict: false }

describe('[sandbox:error]', () => {
  for (const status of [400, 401, 403, 404, 429, 500, 503]) {
    test(`answers ${status} before any event`, async () => {
      await assert.rejects(ask(`[sandbox:error ${status}]`), { status })
      const { events, error } = await watch(`[sandbox:error ${status}]`)
      assert.deepEqual(events, [])
      assert.ok(error instanceof OpenAI.APIError)
      assert.equal(error.headers?.get('retry-after'), status === 429 ? '1' : null)
    })
  }
})

test('say answers with exactly the given text, brackets and line breaks included', async () => {
  const text = '# Title\n\n[link](https://example.com) `a[0]` ]'
  assert.equal((await ask(`Please [sandbox:say ${JSON.stringify(text)}]`)).output_text, text)
})

describe('an ending after some tokens', () => {
  test('fail-after ends with response.failed', async () => {
    const { events } = await watch('[sandbox:fail-after 150]')
    assert.equal(events.at(-1)?.type, 'response.failed')
    assert.equal(deltaCount(events), 150)
    assert.equal(lastResponse(events).error?.code, 'server_error')
    assert.equal(lastResponse(events).usage, null)
    const early = await watch('[sandbox:fail-after 0]', { reasoning: { effort: 'high', summary: 'auto' } })
    assert.deepEqual(
      early.events.map((event) => event.type),
      ['response.created', 'response.in_progress', 'response.failed'],
    )
    assert.equal((await ask('[sandbox:fail-after 3]')).status, 'failed')
  })

  test('error-event-after ends with a flat error event', async () => {
    const response = await fetch(`${server.url}/responses`, {
      method: 'POST',
      body: JSON.stringify({ model: 'm', input: '[sandbox:error-event-after 5]', stream: true }),
    })
    const last = (await response.text()).trimEnd().split('\n\n').at(-1)!
    const [, type, data] = /^event: (.*)\ndata: (.*)$/.exec(last)!
    const { sequence_number, ...event } = JSON.parse(data!)
    assert.equal(type, 'error')
    assert.deepEqual(Object.keys(event), ['type', 'code', 'message', 'param'])
    assert.ok(sequence_number > 0)
    await assert.rejects(ask('[sandbox:error-event-after 5]'), { status: 500 })
  })

  test('cut-after breaks the connection, and all that was said before arrives', async () => {
    for (const count of [0, 7, 20_000]) {
      const { events, error } = await watch(`[sandbox:cut-after ${count}]`)
      assert.ok(error instanceof Error)
      assert.equal(deltaCount(events), count)
    }
    await assert.rejects(ask('[sandbox:cut-after 7]'))
  })

  test('end-after ends cleanly without a terminal event', async () => {
    const { events, error } = await watch('[sandbox:end-after 7]')
    assert.equal(error, undefined)
    assert.equal(deltaCount(events), 7)
    assert.equal(events.at(-1)?.type, 'response.output_text.delta')
  })

  test('stall-after says nothing more and keeps the connection', { timeout: 30_000 }, async () => {
    const answered = new Promise<Answered>((resolve) => {
      onAnswered = resolve
    })
    const body = { model: 'm', input: '[sandbox:stall-after 7]', reasoning: { effort: 'none' as const } }
    let deltas = 0
    for await (const event of await client.responses.create({ ...body, stream: true })) {
      if (event.type === 'response.output_text.delta') deltas += 1
      if (deltas === 7) break
    }
    const { ending, outputTokens } = await answered
    assert.deepEqual([ending, outputTokens], ['aborted', 7])
  })

  test('content-filter ends an incomplete answer after some text', async () => {
    const { events } = await watch('[sandbox:content-filter]', { reasoning: { effort: 'low' } })
    assert.equal(events.at(-1)?.type, 'response.incomplete')
    assert.deepEqual(lastResponse(events).incomplete_details, { reason: 'content_filter' })
    assert.ok(deltaCount(events) > 0)
  })

  test('comes in the middle of a function call too', async () => {
    const { events } = await watch('[sandbox:call look_up {"a":"b c d e f"}] [sandbox:fail-after 3]', { tools: [tool] })
    assert.equal(deltaCount(events), 3)
    assert.equal(events.at(-2)?.type, 'response.function_call_arguments.delta')
  })

  test('gives way to a smaller max_output_tokens', async () => {
    const { events } = await watch('[sandbox:fail-after 50]', { max_output_tokens: 20 })
    assert.equal(events.at(-1)?.type, 'response.incomplete')
    assert.equal(lastResponse(events).usage?.output_tokens, 20)
  })
})

describe('what is said', () => {
  test('tokens makes a text of exactly that many tokens, a delta each', async () => {
    for (const count of [0, 1, 16, 1_000]) {
      const { events } = await watch(`[sandbox:tokens ${count}]`)
      assert.equal(deltaCount(events), count)
      const response = lastResponse(events)
      assert.equal(response.usage?.output_tokens, count)
      const [message] = response.output
      assert.ok(message?.type === 'message' && message.content[0]?.type === 'output_text')
      assert.equal(countTokens(message.content[0].text), count)
    }
  })

  test('echo-request shows what was received', async () => {
    const input = 'look [sandbox:echo-request]'
    const { output_text } = await ask(input, { temperature: 0.5, tools: [tool], safety_identifier: 'x' })
    assert.deepEqual(JSON.parse(output_text), {
      model: 'm',
      input,
      reasoning: { effort: 'none' },
      temperature: 0.5,
      tools: [tool],
      safety_identifier: 'x',
    })
  })

  test('refuse is a refusal', async () => {
    const { events } = await watch('[sandbox:refuse]')
    const done = events.find((event) => event.type === 'response.refusal.done')
    const [message] = lastResponse(events).output
    assert.ok(message?.type === 'message')
    assert.deepEqual(message.content, [{ type: 'refusal', refusal: done?.refusal }])
  })

  test('annotate cites the URLs it was given', async () => {
    const { events } = await watch('See https://example.org/a and https://example.net/b [sandbox:annotate]')
    const annotations = events.filter((event) => event.type === 'response.output_text.annotation.added')
    const [message] = lastResponse(events).output
    assert.ok(message?.type === 'message' && message.content[0]?.type === 'output_text')
    assert.deepEqual(
      annotations.map((event) => event.annotation),
      message.content[0].annotations,
    )
    assert.deepEqual(
      message.content[0].annotations.map((annotation) => annotation.type === 'url_citation' && annotation.url),
      ['https://example.org/a', 'https://example.net/b'],
    )
  })

  test('reasoning-text shows the reasoning itself', async () => {
    const { events } = await watch('[sandbox:reasoning-text]', { reasoning: { effort: 'low', summary: 'auto' } })
    const deltas = events.filter((event) => event.type === 'response.reasoning_text.delta')
    const [item] = lastResponse(events).output
    assert.ok(item?.type === 'reasoning')
    assert.deepEqual(item.summary, [])
    assert.equal(item.content?.[0]?.text, deltas.map((event) => event.delta).join(''))
  })

  test('delay is silence; others are served meanwhile', { timeout: 30_000 }, async () => {
    const leave = new AbortController()
    const body = { model: 'm', input: '[sandbox:delay 600000]' }
    const delayed = client.responses.create(body, { signal: leave.signal, timeout: 700_000 }).catch(() => 'left')
    assert.notEqual(await Promise.race([delayed, ask('hi')]), 'left')
    leave.abort()
    assert.equal(await delayed, 'left')
    assert.equal((await ask('[sandbox:delay 1]')).status, 'completed')
  })

  test('usage can be missing or absurd', async () => {
    assert.equal((await ask('[sandbox:no-usage]')).usage, null)
    assert.deepEqual((await ask('[sandbox:usage {"input_tokens":-5,"output_tokens":["many"]}]')).usage, {
      input_tokens: -5,
      output_tokens: ['many'],
    })
  })
})

describe('calls', () => {
  const user = (content: string): ResponseInputItem => ({ role: 'user', content })
  /** The conversation after every call so far was answered. */
  const answered = (input: ResponseInputItem[], response: Response): ResponseInputItem[] => {
    const calls = response.output.filter((item) => item.type === 'function_call')
    const outputs = calls.map((call) => ({
      type: 'function_call_output' as const,
      call_id: call.call_id,
      output: 'done',
    }))
    return [...input, ...calls, ...outputs]
  }
  const namesOf = (response: Response) =>
    response.output.map((item) => (item.type === 'function_call' ? item.name : item.type))

  test('call makes exactly these calls, once', async () => {
    const input = [user('[sandbox:call look_up {"list":["]", 1]}] [sandbox:call other not json] [sandbox:call third]')]
    const first = await ask(input, { tools: [tool], parallel_tool_calls: false })
    assert.deepEqual(
      first.output.map((item) => item.type === 'function_call' && [item.name, item.arguments]),
      [
        ['look_up', '{"list":["]", 1]}'],
        ['other', 'not json'],
        ['third', '{}'],
      ],
    )
    assert.deepEqual(namesOf(await ask(answered(input, first), { tools: [tool] })), ['message'])
  })

  test('call-again calls in every round until tools are off', async () => {
    for (const text of ['[sandbox:call look_up {}] [sandbox:call-again]', '[sandbox:call-again]']) {
      let input = [user(text)]
      for (let round = 1; round <= 4; round += 1) {
        const response = await ask(input, { tools: [tool] })
        assert.deepEqual(namesOf(response), ['look_up'])
        input = answered(input, response)
      }
      assert.deepEqual(namesOf(await ask(input, { tools: [tool], tool_choice: 'none' })), ['message'])
    }
  })

  test('round keeps what follows it to one round', async () => {
    const input = [
      user('[sandbox:call look_up {}][sandbox:round 2][sandbox:call second {}][sandbox:round 3][sandbox:fail-after 2]'),
    ]
    const first = await ask(input, { tools: [tool] })
    assert.deepEqual(namesOf(first), ['look_up'])
    const second = await ask(answered(input, first), { tools: [tool] })
    assert.deepEqual(namesOf(second), ['second'])
    const third = await ask(answered(answered(input, first), second), { tools: [tool] })
    assert.equal(third.status, 'failed')
  })
})

describe('reading directives', () => {
  test('only the last user message scripts the answer', async () => {
    const response = await ask([
      { role: 'user', content: '[sandbox:error 500]' },
      { role: 'assistant', content: '[sandbox:error 500]' },
      { role: 'user', content: 'Hello again' },
      { role: 'developer', content: '[sandbox:error 500]' },
    ])
    assert.match(response.output_text, /“Hello again”/)
  })

  test('directives combine and leave the rest of the text', () => {
    const { script, rest } = readScript('Say [sandbox:tokens 5] it [sandbox:no-usage] [loud] [sandbox:', 1)
    assert.equal(rest, 'Say  it  [loud] [sandbox:')
    assert.equal(script.tokens, 5)
    assert.deepEqual(script.usage, { value: null })
  })

  test('a typo is refused, not ignored', async () => {
    for (const typo of [
      '[sandbox:tokns 5]',
      '[sandbox:tokens five]',
      '[sandbox:say aloud]',
      '[sandbox:error 418]',
      '[sandbox:usage {]',
      '[sandbox:constructor]',
    ]) {
      await assert.rejects(ask(typo), { status: 400, param: 'input' })
    }
  })
})
