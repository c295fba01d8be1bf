import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { StringDecoder } from 'node:string_decoder'
import { test } from 'node:test'
import fc from 'fast-check'
import type { ChatEvent } from '../inference/chat-events.ts'
import { readUsage } from '../inference/usage.ts'
import { createChatCompletionsReader } from './chat-completions-events.ts'

// Written after the documented streams of the servers: none of them could be reached to be recorded.
const fixtures = new URL('./__fixtures__/chat-completions/', import.meta.url)
const streams = new Map(
  readdirSync(fixtures).map((name) => [name.replace('.sse', ''), readFileSync(new URL(name, fixtures))]),
)

/** Reads bytes as the network hands them over: cut anywhere, characters included. */
function read(pieces: readonly Buffer[]): ChatEvent[] {
  const reader = createChatCompletionsReader()
  const decoder = new StringDecoder('utf8')
  const events = pieces.flatMap((piece) => reader.push(decoder.write(piece)))
  return reader.ended ? events : [...events, ...reader.end()]
}

function told(events: readonly ChatEvent[]): string[] {
  return events.flatMap((event) => {
    switch (event.type) {
      case 'accepted':
      case 'item':
      case 'usage-so-far':
        return []
      case 'tool-call':
        return `call ${event.index} ${event.id} ${event.name}`
      case 'tool-arguments':
        return `arguments ${event.index} ${event.text}`
      case 'annotation': {
        const { url, title, startIndex, endIndex } = event.annotation
        return `annotation ${url} ${title} ${startIndex}-${endIndex}`
      }
      case 'finish':
        return `finish ${event.reason}`
      case 'failed':
        return `failed ${event.code}: ${event.message}`
      default:
        return 'text' in event ? `${event.type} ${event.text}` : event.type
    }
  })
}

const answers: Record<string, readonly string[]> = {
  text: ['text Grüße', 'text , 世界 👋', 'finish stop'],
  'reasoning-content': ['reasoning Let me', 'reasoning  add.', 'text 4', 'finish stop'],
  reasoning: ['reasoning Hm', 'reasoning m.', 'text 4', 'finish stop'],
  'content-parts': ['reasoning Let me', 'reasoning  add.', 'text The sum', 'text  is 4', 'finish stop'],
  citations: ['text A coin.', 'annotation https://example.com/penny Penny 0-7', 'finish stop'],
  refusal: ['refusal I cannot', 'refusal  do that.', 'finish stop'],
  'parallel-calls': [
    'call 0 call_a add',
    'arguments 0 {"a"',
    'arguments 0 :1}',
    'call 1 call_b sub',
    'arguments 1 {"b":',
    'arguments 1 2}',
    'finish tool_calls',
  ],
  'interleaved-calls': [
    'call 0 call_a add',
    'arguments 0 {',
    'arguments 0 }',
    'call 1 call_b sub',
    'arguments 1 {',
    'arguments 1 }',
    'finish tool_calls',
  ],
  'calls-of-one-index': [
    'call 0 call_a add',
    'arguments 0 {"a":1}',
    'call 1 call_b add',
    'arguments 1 {"a":2}',
    'finish tool_calls',
  ],
  length: ['text One two', 'finish length'],
  'cut-call': ['call 0 call_a add', 'arguments 0 {"a":', 'finish length'],
  'content-filter': ['text So', 'finish content_filter'],
  'no-usage': ['text Hi', 'finish stop'],
  'no-done': ['text Hi', 'finish stop'],
  'broken-off': ['text Hi', 'failed upstream_ended: The answer ended early.'],
  'done-only': ['text Hi', 'failed upstream_ended: The answer ended early.'],
  'error-before-output': ['failed server_error: Upstream is down'],
  'error-after-output': ['text Hi', 'failed server_error: Provider disconnected'],
  'error-text': ['failed server_error: model runner has unexpectedly stopped'],
  'reasoning-apart': ['text 4', 'finish stop'],
  'reasoning-in-total': ['text 1', 'text , 2', 'finish length'],
  'crlf-comments': ['text Hi', 'finish stop'],
}

for (const [name, expected] of Object.entries(answers)) {
  test(`a stream of chat completions becomes neutral events: ${name}`, () => {
    assert.deepEqual(told(read([streams.get(name)!])), expected)
  })
}

test('a call without an id gets one that stays the same', () => {
  const [call, given, end] = told(read([streams.get('call-without-id')!]))
  assert.match(call!, /^call 0 call_[0-9a-f]+ add$/)
  assert.equal(given, 'arguments 0 {"a":1}')
  assert.equal(end, 'finish tool_calls')
})

test('any split of the bytes gives the same events', () => {
  fc.assert(
    fc.property(
      fc.constantFrom(...streams.keys()),
      fc.array(fc.nat({ max: 4_000 }), { maxLength: 40 }),
      (name, places) => {
        const bytes = streams.get(name)!
        const cuts = [0, ...places.filter((place) => place < bytes.length).sort((one, other) => one - other)]
        const pieces = cuts.map((cut, index) => bytes.subarray(cut, cuts[index + 1] ?? bytes.length))
        assert.deepEqual(read(pieces), read([bytes]))
      },
    ),
    { numRuns: 500 },
  )
})

test('any input ends an answer once and throws nothing', () => {
  const word = fc.oneof(fc.jsonValue(), fc.constantFrom('delta', 'tool_calls', 'content', 0, null))
  const chunk = fc.record(
    {
      id: word,
      error: fc.oneof({ weight: 8, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: word }),
      usage: word,
      choices: fc.oneof(
        word,
        fc.array(
          fc.record(
            {
              finish_reason: fc.oneof(fc.constantFrom('stop', 'length', 'error', null), word),
              delta: fc.record(
                {
                  content: word,
                  reasoning: word,
                  tool_calls: fc.oneof(
                    word,
                    fc.array(
                      fc.record({ index: word, id: word, function: fc.record({ name: word, arguments: word }) }),
                    ),
                  ),
                },
                { requiredKeys: [] },
              ),
            },
            { requiredKeys: [] },
          ),
        ),
      ),
    },
    { requiredKeys: [] },
  )
  fc.assert(
    fc.property(fc.array(chunk, { maxLength: 8 }), (chunks) => {
      const events = read([Buffer.from(chunks.map((one) => `data: ${JSON.stringify(one)}\n\n`).join(''))])
      const ends = events.filter(({ type }) => type === 'finish' || type === 'failed')
      assert.equal(ends.length, 1)
      assert.equal(events.at(-1), ends[0])
    }),
  )
})

test('usage is read wherever the server puts it', () => {
  const usageOf = (name: string) => {
    const last = read([streams.get(name)!]).at(-1)
    return readUsage(last?.type === 'finish' ? last.usage : undefined)
  }
  const tokens = (prompt: number, cached: number, completion: number, reasoning: number) => ({
    promptTokens: prompt,
    cachedTokens: cached,
    completionTokens: completion,
    reasoningTokens: reasoning,
  })
  assert.deepEqual(usageOf('text'), tokens(9, 8, 4, 0))
  assert.deepEqual(usageOf('reasoning-content'), tokens(9, 4, 7, 5))
  assert.deepEqual(usageOf('reasoning-apart'), tokens(9, 0, 21, 20), 'reasoning is billed where the total contains it')
  assert.deepEqual(usageOf('reasoning-in-total'), tokens(9, 0, 96, 93), 'even where nothing else reports it')
  assert.equal(usageOf('no-usage'), undefined, 'and counted by us where there is none')
})

test('a total that also has cached input or leaves out something adds no reasoning', () => {
  const outputOf = (usage: object) => {
    const stop = { choices: [{ delta: { content: 'Hi' }, finish_reason: 'stop' }], usage }
    const last = read([Buffer.from(`data: ${JSON.stringify(stop)}\n\n`)]).at(-1)
    const reported = readUsage(last?.type === 'finish' ? last.usage : undefined)
    return reported !== undefined && 'completionTokens' in reported && reported.completionTokens
  }
  const usage = { prompt_tokens: 9, completion_tokens: 3 }
  assert.equal(outputOf({ ...usage, total_tokens: 16, prompt_tokens_details: { cached_tokens: 4 } }), 3)
  assert.equal(outputOf({ ...usage, total_tokens: 16, completion_tokens_details: { reasoning_tokens: 2 } }), 3)
  assert.equal(outputOf({ ...usage, total_tokens: 10 }), 3)
  assert.equal(outputOf(usage), 3)
})

test('usage that was reported before the last output is a lower bound, not the end’s usage', () => {
  const usage = { prompt_tokens: 9, completion_tokens: 1 }
  const first = { choices: [{ delta: { role: 'assistant', content: '' } }], usage }
  const text = { choices: [{ delta: { content: 'a long answer' } }] }
  const call = { choices: [{ delta: { tool_calls: [{ index: 0, id: 'c', function: { name: 'add' } }] } }] }
  const stop = { choices: [{ delta: {}, finish_reason: 'stop' }] }
  const failure = { error: { message: 'out of memory' } }
  const lastOf = (...chunks: readonly object[]) =>
    read([Buffer.from(chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join(''))]).at(-1)!
  const hasUsage = (...chunks: readonly object[]) => Object.hasOwn(lastOf(...chunks), 'usage')
  assert.equal(hasUsage(first, text, stop), false)
  assert.equal(hasUsage(first, call, stop), false)
  const parts = { choices: [{ delta: { content: [{ type: 'text', text: 'a long answer' }] } }] }
  assert.equal(hasUsage(first, parts, stop), false)
  assert.equal(hasUsage(first, text, failure), false)
  assert.equal(hasUsage(first, { ...text, usage }, stop), true, 'reported with every chunk')
  assert.equal(hasUsage(first, text, { ...stop, usage }), true)
  assert.equal(hasUsage(first, failure), true)
})

const chunk = (delta: object, finish_reason: string | null = null) =>
  `data: ${JSON.stringify({ choices: [{ delta, finish_reason }] })}\n\n`
const call = { index: 0, id: 'c', function: { name: 'web_search', arguments: '{}' } }

test('a round of calls is replayed as one message, with the reasoning under its own name', () => {
  const stream = chunk({ reasoning_content: 'Hm.' }) + chunk({ content: 'Wait.', tool_calls: [call] }, 'tool_calls')
  const item = read([Buffer.from(stream)]).find(({ type }) => type === 'item')
  assert.deepEqual(item, {
    type: 'item',
    index: 0,
    item: {
      role: 'assistant',
      content: 'Wait.',
      reasoning_content: 'Hm.',
      tool_calls: [{ id: 'c', type: 'function', function: { name: 'web_search', arguments: '{}' } }],
    },
    said: 'Wait.',
    callIds: ['c'],
  })
})

test('a signature of the thoughts before a call, as Google sends it, is replayed with its call', () => {
  const extra_content = { google: { thought_signature: 'c2lnbmVk' } }
  const other = { ...call, index: 1, id: 'd' }
  const stream = chunk({ tool_calls: [{ ...call, extra_content }, other] }, 'tool_calls')
  const item = read([Buffer.from(stream)]).find(({ type }) => type === 'item')
  const called = (id: string) => ({ id, type: 'function', function: call.function })
  assert.deepEqual(item?.type === 'item' && item.item.tool_calls, [{ ...called('c'), extra_content }, called('d')])
})

test('the reasoning details of OpenRouter are replayed in order, each text joined with its signature', () => {
  const detail = (type: string, index: number, more: object) => ({ type: `reasoning.${type}`, index, ...more })
  const sealed = [detail('encrypted', 1, { data: 'c2Vh' }), detail('encrypted', 1, { data: 'bGVk' })]
  const stream =
    chunk({ reasoning: 'Let', reasoning_details: [detail('text', 0, { text: 'Let', signature: null })] }) +
    chunk({ reasoning: ' me.', reasoning_details: [detail('text', 0, { text: ' me.', format: 'f' })] }) +
    chunk({ reasoning_details: [detail('text', 0, { text: null, signature: 'c2ln' }), ...sealed] }) +
    chunk({ reasoning_details: [null, detail('text', 2, { text: 'Search.' })] }) +
    chunk({ tool_calls: [call] }, 'tool_calls')
  const item = read([Buffer.from(stream)]).find(({ type }) => type === 'item')
  assert.deepEqual(item?.type === 'item' && [item.item.reasoning, item.item.reasoning_details], [
    'Let me.',
    [
      detail('text', 0, { text: 'Let me.', signature: 'c2ln', format: 'f' }),
      ...sealed,
      detail('text', 2, { text: 'Search.' }),
    ],
  ])
})

test('a round of content in parts is replayed in parts, its reasoning first', () => {
  const thoughts = (text: string) => ({ type: 'thinking', thinking: [{ type: 'text', text }] })
  const written = { type: 'text', text: 'Wait.' }
  const stream =
    chunk({ content: [thoughts('Hm')] }) +
    chunk({ content: [thoughts('.'), { type: 'reference', reference_ids: [1] }] }) +
    chunk({ content: [written], tool_calls: [call] }, 'tool_calls')
  const item = read([Buffer.from(stream)]).find(({ type }) => type === 'item')
  assert.deepEqual(item?.type === 'item' && [item.said, item.item.content], ['Wait.', [thoughts('Hm.'), written]])
})

test('only the first choice is read', () => {
  const send = (...choices: readonly object[]) => `data: ${JSON.stringify({ choices })}\n\n`
  const first = (content: string) => ({ index: 0, delta: { content } })
  const second = { index: 1, delta: { content: 'second' } }
  const usage = { prompt_tokens: 3, completion_tokens: 4 }
  const stream = [
    send(first('one ')),
    send(second),
    send(second, first('two')),
    send({ index: 1, delta: {}, finish_reason: 'stop' }),
    send({ index: 0, delta: {}, finish_reason: 'length' }),
    send(second),
    `data: ${JSON.stringify({ choices: [], usage })}\n\n`,
  ].join('')
  const events = read([Buffer.from(stream)])
  assert.deepEqual(
    events.flatMap((event) => (event.type === 'text' ? event.text : [])),
    ['one ', 'two'],
  )
  const end = events.at(-1)
  assert.ok(end?.type === 'finish' && end.reason === 'length')
  assert.deepEqual((end.usage as { output_tokens: unknown }).output_tokens, 4)
})
