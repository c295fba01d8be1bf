import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { StringDecoder } from 'node:string_decoder'
import { test } from 'node:test'
import fc from 'fast-check'
import type { ChatEvent } from '../inference/chat-events.ts'
import { readUsage } from '../inference/usage.ts'
import { eventCharactersMax } from './event-stream.ts'
import { createResponsesReader } from './responses-events.ts'

const fixtures = new URL('./__fixtures__/', import.meta.url)
const recordings = new Map(
  readdirSync(fixtures)
    .filter((name) => name.endsWith('.sse'))
    .map((name) => [name.replace('.sse', ''), readFileSync(new URL(name, fixtures))]),
)

/** Reads bytes as the network hands them over: cut anywhere, characters included. */
function read(pieces: readonly Buffer[]): ChatEvent[] {
  const reader = createResponsesReader()
  const decoder = new StringDecoder('utf8')
  const events = pieces.flatMap((piece) => reader.push(decoder.write(piece)))
  return [...events, ...reader.end()]
}

const readRecording = (name: string): ChatEvent[] => read([recordings.get(name)!])

/** One word an event, which is all that most of these tests are about. */
function told(events: readonly ChatEvent[]): string[] {
  return events.flatMap((event) => {
    switch (event.type) {
      case 'item':
        return []
      case 'tool-call':
        return `call ${event.index} ${event.id} ${event.name}`
      case 'tool-arguments':
        return `arguments ${event.index} ${event.text}`
      case 'annotation':
        return `cited ${event.annotation.url} ${event.annotation.startIndex}-${event.annotation.endIndex}`
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
  text: ['text Penny', 'text  keeps', 'text  the books', 'text  straight', 'text .', 'finish stop'],
  'reasoning-summary': [
    'reasoning **Reading',
    'reasoning  the question**',
    'reasoning \n\n**Adding',
    'reasoning ** two numbers',
    'reasoning \n\n**Checking**',
    'text 4',
    'finish stop',
  ],
  'reasoning-done-only': ['reasoning **One**', 'reasoning \n\n**Two**', 'text Yes.', 'finish stop'],
  'reasoning-text': ['reasoning Let me', 'reasoning  think.', 'text Done.', 'finish stop'],
  refusal: ["refusal I can't", 'refusal  help with that.', 'finish stop'],
  'tool-call': [
    'reasoning **Choosing a tool**',
    'call 0 call_a1 get_weather',
    'arguments 0 {"city"',
    'arguments 0 :"',
    'arguments 0 Bern',
    'arguments 0 "}',
    'finish tool_calls',
  ],
  'parallel-calls': [
    'text Looking both up.',
    'call 0 call_a1 get_weather',
    'arguments 0 {"city":"Bern"}',
    'call 1 call_b2 get_time',
    'arguments 1 {"zone":',
    'arguments 1 "CET"}',
    'finish tool_calls',
  ],
  'interleaved-calls': [
    'call 0 call_a1 get_weather',
    'arguments 0 {"city":',
    'arguments 0 "Bern"}',
    'call 1 call_b2 get_time',
    'arguments 1 {"zone":',
    'arguments 1 "CET"}',
    'call 2 call_c3 get_news',
    'arguments 2 {}',
    'finish tool_calls',
  ],
  'arguments-done-only': [
    'call 0 call_a1 get_weather',
    'arguments 0 {"city":"Bern"}',
    'call 1 call_b2 ping',
    'finish tool_calls',
  ],
  'incomplete-length': ['text Once upon', 'text  a time', 'finish length'],
  'incomplete-call': [
    'call 0 call_a1 get_weather',
    'arguments 0 {"city":"Bern"}',
    'call 1 call_b2 write_file',
    'arguments 1 {"path":"a.txt","te',
    'finish length',
  ],
  'content-filter': ['text The first', 'finish content_filter'],
  failed: ['text Half an', 'failed server_error: The server had an error. See [removed] with key [removed].'],
  'error-flat': ['failed rate_limit_exceeded: Rate limit reached for [removed].'],
  'error-nested': ['failed context_length_exceeded: Your input exceeds the context window of this model.'],
  annotations: [
    'text First, ',
    'text [a].',
    'cited https://a.example/1 7-10',
    'text \n\nThen [b] and [c].',
    'cited https://b.example/ 18-21',
    'cited https://c.example/ 26-29',
    'finish stop',
  ],
  'text-done-only': ['text All at once, [d].', 'cited https://d.example/ 13-16', 'finish stop'],
  'no-terminal': ['text It stops', 'text here', 'failed upstream_ended: The answer ended early.'],
  'two-terminals': ['text Yes', 'finish stop'],
  'unknown-events': ['text Fine.', 'finish stop'],
  'crlf-comments': ['text Line', 'text  ends', 'finish stop'],
  'no-last-blank-line': ['text Cut short', 'finish stop'],
  'no-event-names': ['text Only', 'text  data', 'finish stop'],
  unicode: [
    'text Grüße, ',
    'text 世界',
    'text ! 👩‍👩‍👧 ',
    'text \ud83d',
    'text \ude00',
    'text  \u2028 "quoted"\n',
    'text \\u0000',
    'finish stop',
  ],
}

for (const name of recordings.keys()) {
  test(`the recorded answer "${name}" is read correctly`, () => {
    assert.deepEqual(told(readRecording(name)), ['accepted', ...(answers[name] ?? [])])
  })
}

test('an answer reads the same however the network cuts it', () => {
  for (const [name, bytes] of recordings) {
    const whole = readRecording(name)
    const cuts = fc.array(fc.nat(bytes.length), { maxLength: 60 })
    fc.assert(
      fc.property(cuts, (places) => {
        const sorted = [0, ...places.sort((a, b) => a - b), bytes.length]
        const pieces = sorted.slice(1).map((end, index) => bytes.subarray(sorted[index], end))
        assert.deepEqual(read(pieces), whole, name)
      }),
      { numRuns: 60 },
    )
    assert.deepEqual(read([...bytes].map((byte) => Buffer.from([byte]))), whole, `${name}, byte by byte`)
  }
})

test('a piece of text is read the same in whatever form it is written', () => {
  fc.assert(
    fc.property(
      fc.string({ unit: 'binary', minLength: 1 }),
      fc.nat(9),
      fc.nat(9),
      (delta, outputIndex, contentIndex) => {
        const place = { item_id: 'msg_1', output_index: outputIndex, content_index: contentIndex }
        const type = 'response.output_text.delta'
        const forms = [
          { type, sequence_number: 7, ...place, delta, logprobs: [], obfuscation: 'Xy' },
          { type, ...place, delta },
          { delta, ...place, type, logprobs: [{ token: delta }] },
        ]
        const cited = { type: 'response.output_text.annotation.added', ...place, annotation: citation }
        for (const form of forms) {
          for (const write of waysToWrite) {
            const [, text, annotation] = createResponsesReader().push(write(form) + write(cited))
            assert.deepEqual(text, { type: 'text', text: delta })
            assert.equal(annotation?.type === 'annotation' && annotation.annotation.startIndex, 1)
          }
        }
      },
    ),
  )
})

const waysToWrite: readonly ((event: { readonly type: string }) => string)[] = [
  (event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`,
  (event) => `data: ${JSON.stringify(event)}\n\n`,
  (event) => `event: ${event.type}\r\ndata: ${JSON.stringify(event)}\r\n\r\n`,
  (event) => `: a comment\nid: 7\ndata:${JSON.stringify(event)}\nevent: ${event.type}\n\n`,
]

const citation = { type: 'url_citation', url: 'https://example.org', title: '', start_index: 1, end_index: 2 }

test('an answer reads the same whatever ends its lines', () => {
  for (const [name, bytes] of recordings) {
    const lines = bytes.toString().replaceAll('\r\n', '\n')
    for (const ending of ['\n', '\r\n', '\r']) {
      assert.deepEqual(read([Buffer.from(lines.replaceAll('\n', ending))]), readRecording(name), name)
    }
  }
})

test('a piece of text with a line broken in it is not JSON', () => {
  for (const broken of ['one\ntwo', 'one\rtwo', 'one\r\ntwo']) {
    const reader = createResponsesReader()
    const delta = '{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"'
    assert.deepEqual(reader.push(`event: response.output_text.delta\ndata: ${delta}${broken}"}\n\n`), [])
  }
})

test('data after the end of an answer is ignored, in the same chunk and in a later one', () => {
  const reader = createResponsesReader()
  const [asTyped] = waysToWrite
  const delta = { type: 'response.output_text.delta', item_id: 'm', output_index: 0, content_index: 0, delta: 'more' }
  const events = reader.push(asTyped!({ type: 'response.completed' }) + asTyped!(delta))
  assert.deepEqual(told(events), ['accepted', 'finish stop'])
  assert.deepEqual(reader.push(asTyped!(delta)), [])
})

test('finished items come back exactly as received, with their position', () => {
  const items = readRecording('tool-call').filter((event) => event.type === 'item')
  assert.deepEqual(
    items.map(({ index, item }) => [index, item.type]),
    [
      [0, 'reasoning'],
      [1, 'function_call'],
    ],
  )
  assert.equal(items[0]?.item.encrypted_content, 'gAAAAABo8aKjrs_01')
})

test('the first end of an answer is the one that is billed', () => {
  const last = readRecording('two-terminals').at(-1)
  assert.ok(last?.type === 'finish')
  assert.deepEqual(readUsage(last.usage), { promptTokens: 5, cachedTokens: 0, completionTokens: 1, reasoningTokens: 0 })
})

test('a completed answer that reached the token limit was cut off', () => {
  const call = { type: 'function_call', call_id: 'call_a1', name: 'write_file' }
  const events = [
    { type: 'response.output_item.added', output_index: 0, item: call },
    { type: 'response.function_call_arguments.delta', output_index: 0, delta: '{"path":"a' },
  ]
  for (const [output_tokens, reason] of [
    [15, 'tool_calls'],
    [16, 'length'],
    [17, 'tool_calls'],
  ] as const) {
    const completed = { type: 'response.completed', response: { usage: { input_tokens: 3, output_tokens } } }
    const reader = createResponsesReader([], 16)
    const read = [...events, completed].flatMap((event) => reader.push(`data: ${JSON.stringify(event)}\n\n`))
    assert.equal(told(read).at(-1), `finish ${reason}`)
  }
})

test('an endless event ends the answer instead of filling memory', () => {
  const reader = createResponsesReader()
  const events = reader.push('data: {"type":"response.output_text.delta","delta":"')
  const filler = 'x'.repeat(65_536)
  for (let length = 0; length <= eventCharactersMax + filler.length; length += filler.length)
    events.push(...reader.push(filler))
  assert.deepEqual(told(events), ['failed event_too_large: The model sent an event that is too large.'])
  assert.deepEqual(reader.push('more'), [])
  assert.deepEqual(reader.end(), [])
})

test('calls that wait for an unfinished one are limited in size', () => {
  const reader = createResponsesReader()
  const send = (event: object) => reader.push(`data: ${JSON.stringify(event)}\n\n`)
  for (const output_index of [0, 1]) {
    const item = { type: 'function_call', call_id: `c${output_index}`, name: 'f' }
    send({ type: 'response.output_item.added', output_index, item })
  }
  const delta = { type: 'response.function_call_arguments.delta', output_index: 1, delta: 'x'.repeat(1_000_000) }
  const events = Array.from({ length: 5 }, () => send(delta)).flat()
  assert.deepEqual(told(events), ['failed arguments_too_large: The model sent an event that is too large.'])
})

test('words that must stay hidden are in no message', () => {
  const reader = createResponsesReader(['api.upstream.test', 'secret-key'])
  const events = reader.push('data: {"type":"error","message":"api.upstream.test denied secret-key","code":null}\n\n')
  assert.deepEqual(told(events), ['failed server_error: [removed] denied [removed]'])
})

const used = { input_tokens: 24, input_tokens_details: { cached_tokens: 8 }, output_tokens: 5 }
const claimed = { input_tokens: 1, output_tokens: 1 }
const said = (text: string) => ({
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  content: [{ type: 'output_text', annotations: [], text }],
})

for (const [what, response] of [
  ['at its end', { status: 'completed', output: [said('x')], usage: used }],
  ['before simple members', { output: [said('x')], usage: used, user: null, tags: ['a'], metadata: { a: 'b' } }],
  ['before the output', { usage: used, output: [said('x')] }],
  ['before an item with a usage of its own', { usage: used, output: [{ ...said('x'), usage: claimed }] }],
  ['where the text repeats one', { usage: used, output: [said(`},"usage":${JSON.stringify(claimed)}}`)] }],
  ['and none where only an item has one', { output: [{ ...said('x'), usage: claimed }] }],
  ['and none where only the text has one', { output: [said(`"usage":${JSON.stringify(claimed)}`)] }],
] as const) {
  test(`the usage of an answer is its response's, ${what}`, () => {
    const data = JSON.stringify({ type: 'response.completed', sequence_number: 9, response })
    const [, finish] = createResponsesReader().push(`event: response.completed\ndata: ${data}\n\n`)
    const expected = 'usage' in response ? { usage: used } : {}
    assert.deepEqual(finish, { type: 'finish', reason: 'stop', ...expected })
  })
}

test('the item of a streamed message is what a further round sends back, in every form of its event', () => {
  const item = said('A "coin".')
  const delta = { item_id: 'msg_1', output_index: 0, content_index: 0, delta: 'A "coin".' }
  for (const form of [(event: object) => JSON.stringify(event), (event: object) => JSON.stringify(event, null, 1)]) {
    const frame = (type: string, fields: object) =>
      `event: ${type}\n${form({ type, ...fields }).replace(/^/gm, 'data: ')}\n\n`
    const events = createResponsesReader().push(
      frame('response.output_text.delta', delta) + frame('response.output_item.done', { output_index: 0, item }),
    )
    assert.deepEqual(
      events.filter(({ type }) => type === 'item').map((event) => ({ ...event })),
      [{ type: 'item', index: 0, item, said: 'A "coin".' }],
    )
  }
})

test('whatever an upstream sends, reading it throws nothing and ends once', () => {
  const types = [
    'created',
    'output_item.added',
    'output_item.done',
    'output_text.delta',
    'output_text.annotation.added',
    'refusal.delta',
    'function_call_arguments.delta',
    'function_call_arguments.done',
    'reasoning_summary_text.delta',
    'completed',
    'incomplete',
    'failed',
  ].map((type) => `response.${type}`)
  const junk = fc.jsonValue({ maxDepth: 2 })
  const item = fc.record(
    {
      type: fc.constantFrom('message', 'function_call', 'reasoning'),
      id: junk,
      call_id: junk,
      name: junk,
      arguments: junk,
      content: junk,
      summary: junk,
    },
    { requiredKeys: ['type'] },
  )
  const event = fc.record(
    {
      type: fc.constantFrom(...types, 'error', 'other'),
      output_index: fc.oneof(fc.nat(3), junk),
      delta: fc.oneof(fc.string(), junk),
      item: fc.oneof(item, junk),
      response: junk,
      arguments: junk,
      annotation: junk,
      error: junk,
    },
    { requiredKeys: ['type'] },
  )
  const lines = fc.array(
    fc.oneof(
      event.map((value) => `data: ${JSON.stringify(value)}\n\n`),
      fc.string({ unit: 'binary' }),
    ),
    { maxLength: 12 },
  )
  fc.assert(
    fc.property(lines, (stream) => {
      const events = read([Buffer.from(stream.join(''))])
      const ends = events.filter(({ type }) => type === 'finish' || type === 'failed')
      assert.equal(ends.length, 1)
      assert.equal(events.at(-1), ends[0])
    }),
    { numRuns: 2_000 },
  )
})
