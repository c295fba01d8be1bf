import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { ServiceError } from '../errors.ts'
import { type ChatRequest, parseChatRequest } from './chat-request.ts'

const hello = [{ role: 'user', content: 'hello' }]
const call = (id: string) => ({ id, type: 'function', function: { name: 'get_weather', arguments: '{}' } })
const result = (id: string) => ({ role: 'tool', tool_call_id: id, content: 'rain' })

const parse = (body: unknown): ChatRequest =>
  parseChatRequest(body, { defaultModel: 'tiny', ids: ['tiny'], maxOutputTokens: () => 4_000 })

test('histories as clients really send them are accepted', () => {
  const { messages } = parse({
    messages: [
      { role: 'developer', content: 'Be brief.', name: 'ops' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'a' },
          { type: 'text', text: 'b', prompt_cache_breakpoint: {} },
        ],
      },
      {
        role: 'assistant',
        content: null,
        refusal: null,
        tool_calls: [call('a'), call('b')],
        reasoning_content: 'hm',
        annotations: [],
      },
      result('b'),
      { role: 'tool', tool_call_id: 'a', content: [{ type: 'text', text: 'sun' }] },
      { role: 'assistant', content: '', tool_calls: [] },
      { role: 'assistant', content: null, reasoning: 'only thought' },
      { role: 'assistant', content: [{ type: 'refusal', refusal: 'No.' }] },
      { role: 'assistant', content: null, refusal: 'No!' },
      { role: 'user', content: '' },
    ],
  })
  const calls = ['a', 'b'].map((id) => ({ id, name: 'get_weather', arguments: '{}' }))
  assert.deepEqual(messages, [
    { role: 'developer', content: 'Be brief.' },
    { role: 'user', content: ['a', 'b'] },
    { role: 'assistant', content: undefined, refusal: undefined, toolCalls: calls },
    { role: 'tool', toolCallId: 'b', content: 'rain' },
    { role: 'tool', toolCallId: 'a', content: ['sun'] },
    { role: 'assistant', content: '', refusal: undefined, toolCalls: [] },
    { role: 'assistant', content: undefined, refusal: undefined, toolCalls: [] },
    { role: 'assistant', content: undefined, refusal: 'No.', toolCalls: [] },
    { role: 'assistant', content: undefined, refusal: 'No!', toolCalls: [] },
    { role: 'user', content: '' },
  ])
})

test('calls to tools with names of other providers are rewritten to names the upstream accepts', () => {
  const named = (name: unknown) => ({ id: 'a', type: 'function', function: { name, arguments: '{}' } })
  const history = (name: unknown) => ({
    messages: [...hello, { role: 'assistant', content: null, tool_calls: [named(name)] }, result('a')],
  })
  const rewritten = (name: string): string => {
    const [, message] = parse(history(name)).messages
    return message?.role === 'assistant' ? message.toolCalls[0]!.name : ''
  }
  assert.equal(rewritten('get_weather'), 'get_weather')
  assert.match(rewritten('mcp.server:tool'), /^mcp_server_tool_[0-9a-f]{8}$/)
  const names = [
    'mcp.server:tool',
    'mcp:server.tool',
    'web.search',
    'ü',
    ' ',
    '😀'.repeat(100),
    'n'.repeat(65),
    'n'.repeat(66),
  ]
  const written = names.map(rewritten)
  for (const name of written) assert.match(name, /^[A-Za-z0-9_-]{1,64}$/)
  assert.equal(new Set(written).size, names.length, 'different tools stay different')
  assert.deepEqual(written, names.map(rewritten), 'the same every time, so that prompt caches hit')
  for (const name of ['', 7, {}]) {
    assert.throws(() => parse(history(name)), {
      code: 'invalid_value',
      param: 'messages[1].tool_calls[0].function.name',
    })
  }
})

test('a tool result without content is an empty one', () => {
  for (const content of [{ content: null }, {}, { content: '' }]) {
    const messages = [
      ...hello,
      { role: 'assistant', content: null, tool_calls: [call('a')] },
      { role: 'tool', tool_call_id: 'a', ...content },
    ]
    assert.deepEqual(parse({ messages }).messages[2], { role: 'tool', toolCallId: 'a', content: '' })
  }
})

/** One call and its result for each of these, in sequence. */
const turns = (ids: readonly string[]) =>
  ids.flatMap((id) => [{ role: 'assistant', content: null, tool_calls: [call(id)] }, result(id)])

test('call ids that are longer than OpenAI allows are replaced by short ones', () => {
  const long = ['a'.repeat(65), 'b'.repeat(512)]
  const { messages } = parse({ messages: [...hello, ...turns(['a'.repeat(64), ...long])] })
  assertPaired({ messages })
  const [kept, ...replaced] = callIds(messages)
  assert.equal(kept, 'a'.repeat(64))
  for (const id of replaced) assert.match(id, /^call_[0-9a-f]{48}$/)
})

test('call ids that a client reuses in a later turn, or leaves empty, are made unique', () => {
  const { messages } = parse({ messages: [...hello, ...turns(['call_0', '', 'call_0', 'call_0', ''])] })
  assertPaired({ messages })
  const ids = callIds(messages)
  assert.equal(ids[0], 'call_0')
  for (const id of ids.slice(1)) assert.match(id, /^call_[0-9a-f]{48}$/)
  // A longer conversation starts with the same bytes; otherwise the upstream's cache would miss.
  assert.deepEqual(parse({ messages: [...hello, ...turns(['call_0', '', 'call_0'])] }).messages, messages.slice(0, 7))
  // A derived id is accepted like any other.
  assertPaired(parse({ messages: [...hello, ...turns(['call_0', 'call_0', ids[2]!])] }))
})

test('calls without ids match results by order, also next to calls with ids', () => {
  const given = (content: string, tool_call_id = '') => ({ role: 'tool', tool_call_id, content })
  const { messages } = parse({
    messages: [
      ...hello,
      { role: 'assistant', content: null, tool_calls: [call(''), call('a'), call('')] },
      given('first'),
      given('second'),
      given('named', 'a'),
    ],
  })
  assertPaired({ messages })
  const [first, named, second] = callIds(messages)
  const results = messages.flatMap((message) =>
    message.role === 'tool' ? [[message.toolCallId, message.content]] : [],
  )
  assert.equal(named, 'a')
  assert.deepEqual(results, [
    [first, 'first'],
    [second, 'second'],
    ['a', 'named'],
  ])
})

test('in every conversation that is accepted, each call has its own id and one result', () => {
  let acceptedCount = 0
  const id = fc.constantFrom('a', 'b', '', 'c'.repeat(80))
  const message = fc.oneof(
    fc.array(id, { maxLength: 2 }).map((ids) => ({ role: 'assistant', content: 'x', tool_calls: ids.map(call) })),
    id.map(result),
  )
  fc.assert(
    fc.property(fc.array(message, { maxLength: 6 }), (messages) => {
      try {
        assertPaired(parse({ messages: [...hello, ...messages] }))
        acceptedCount += 1
      } catch (error) {
        assert.ok(error instanceof ServiceError && error.code === 'invalid_value', `threw ${String(error)}`)
      }
    }),
    { numRuns: 3_000 },
  )
  assert.ok(acceptedCount > 100, `only ${acceptedCount} conversations were accepted: the generator tests nothing`)
})

function callIds(messages: ChatRequest['messages']): string[] {
  return messages.flatMap((message) => (message.role === 'assistant' ? message.toolCalls.map(({ id }) => id) : []))
}

/** No two calls share an id, and each has one result, which comes later. */
function assertPaired({ messages }: Pick<ChatRequest, 'messages'>): void {
  const open = new Set<string>()
  for (const message of messages) {
    if (message.role === 'assistant') for (const { id } of message.toolCalls) open.add(id)
    if (message.role === 'tool') assert.ok(open.delete(message.toolCallId), message.toolCallId)
  }
  assert.equal(open.size, 0)
  const ids = callIds(messages)
  assert.equal(new Set(ids).size, ids.length)
  assert.ok(!ids.includes(''))
}
