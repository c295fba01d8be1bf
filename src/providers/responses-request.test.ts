import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type ChatRequest, parseChatRequest } from '../inference/chat-request.ts'
import { inputOf, inputTexts, type RequestOptions, type Turn, toModelRequest } from './model-request.ts'
import { toResponsesRequest } from './responses-request.ts'

const models = { defaultModel: 'm', ids: ['m'], maxOutputTokens: () => 64_000 }
const options: RequestOptions = { promptCacheKey: 'own-key' }

const chat = (body: object): ChatRequest =>
  parseChatRequest({ messages: [{ role: 'user', content: 'hi' }], ...body }, models)
const neutral = (body: object, more: Partial<RequestOptions> = {}) =>
  toModelRequest(chat(body), { ...options, ...more })
const map = (body: object, more: Partial<RequestOptions> = {}) =>
  toResponsesRequest(neutral(body, more), 'upstream-m', 'here')

const said = (role: string, ...texts: string[]) => ({
  type: 'message',
  role,
  content: texts.map((text) => ({ type: role === 'assistant' ? 'output_text' : 'input_text', text })),
})
const turn = (items: Turn['items'], results: Turn['results'] = []): Turn => ({
  provider: 'here',
  items,
  unlistedCalls: [],
  text: '',
  calls: [],
  results,
})
const call = (id: string) => ({ id, type: 'function', function: { name: 'f', arguments: '{"a":1}' } })

test('the shortest request asks for a stream that is not stored', () => {
  assert.deepEqual(map({}), {
    model: 'upstream-m',
    input: [said('user', 'hi')],
    stream: true,
    store: false,
    include: ['reasoning.encrypted_content'],
    max_output_tokens: 8192,
    reasoning: { effort: 'low', summary: 'auto' },
    prompt_cache_key: 'own-key',
  })
})

test('leading system and developer messages become the instructions, later ones keep their place', () => {
  const request = map({
    messages: [
      { role: 'system', content: 'One.' },
      {
        role: 'developer',
        content: [
          { type: 'text', text: 'Two.' },
          { type: 'text', text: 'Three.' },
        ],
      },
      { role: 'user', content: 'hi' },
      { role: 'system', content: 'Later.' },
      { role: 'developer', content: 'Last.' },
    ],
  })
  assert.equal(request.instructions, 'One.\n\nTwo.\n\nThree.')
  assert.deepEqual(request.input, [said('user', 'hi'), said('system', 'Later.'), said('developer', 'Last.')])
})

test('a conversation with only instructions is valid input', () => {
  const request = map({
    messages: [
      { role: 'system', content: 'One.' },
      { role: 'developer', content: 'Two.' },
    ],
  })
  assert.equal(request.instructions, undefined)
  assert.deepEqual(request.input, [said('developer', 'One.'), said('developer', 'Two.')])
})

test('JSON mode keeps the only mention of JSON where the upstream looks for it', () => {
  const response_format = { type: 'json_object' }
  const system = { role: 'system', content: 'Answer in JSON.' }
  const kept = map({ response_format, messages: [system, { role: 'user', content: 'hi' }] })
  assert.equal(kept.instructions, undefined)
  assert.deepEqual(kept.input, [said('developer', 'Answer in JSON.'), said('user', 'hi')])
  const moved = map({ response_format, messages: [system, { role: 'user', content: 'json please' }] })
  assert.equal(moved.instructions, 'Answer in JSON.')
  assert.deepEqual(moved.text, { format: { type: 'json_object' } })
})

test('a history of calls and results is replayed in order and paired', () => {
  const long = 'toolu_'.repeat(20)
  const { input } = map({
    messages: [
      {
        role: 'user',
        content: [
          { type: 'text', text: 'a' },
          { type: 'text', text: 'b' },
        ],
      },
      { role: 'assistant', content: 'Looking.', tool_calls: [call('short'), call(long)] },
      { role: 'tool', tool_call_id: long, content: [{ type: 'text', text: 'rain' }] },
      { role: 'tool', tool_call_id: 'short', content: 'sun' },
      { role: 'assistant', content: null, tool_calls: [call('again')] },
      { role: 'tool', tool_call_id: 'again', content: '' },
      { role: 'assistant', content: 'No.', refusal: 'I will not.' },
      { role: 'assistant', content: null, reasoning_content: 'only thought' },
    ],
  })
  const hashed = (input[3] as { call_id: string }).call_id
  assert.match(hashed, /^call_[0-9a-f]{48}$/)
  const called = (call_id: string) => ({ type: 'function_call', call_id, name: 'f', arguments: '{"a":1}' })
  assert.deepEqual(input, [
    said('user', 'a', 'b'),
    said('assistant', 'Looking.'),
    called('short'),
    called(hashed),
    { type: 'function_call_output', call_id: hashed, output: [{ type: 'input_text', text: 'rain' }] },
    { type: 'function_call_output', call_id: 'short', output: 'sun' },
    called('again'),
    { type: 'function_call_output', call_id: 'again', output: '' },
    {
      type: 'message',
      role: 'assistant',
      content: [
        { type: 'output_text', text: 'No.' },
        { type: 'refusal', refusal: 'I will not.' },
      ],
    },
    said('assistant', ''),
  ])
})

test('tools always say whether they are strict, and take an object', () => {
  const parameters = { type: 'object', properties: { a: { type: 'string' } } }
  const request = map({
    tools: [
      { type: 'function', function: { name: 'f', description: 'Does f.', parameters, strict: true } },
      { type: 'function', function: { name: 'g' } },
    ],
    tool_choice: { type: 'function', function: { name: 'g' } },
    parallel_tool_calls: false,
  })
  assert.deepEqual(request.tools, [
    { type: 'function', name: 'f', description: 'Does f.', parameters, strict: true },
    { type: 'function', name: 'g', parameters: { type: 'object', properties: {} }, strict: false },
  ])
  assert.deepEqual(request.tool_choice, { type: 'function', name: 'g' })
  assert.equal(request.parallel_tool_calls, false)
})

test('nothing about tools is said without tools', () => {
  const request = map({ tools: [], tool_choice: 'none' })
  assert.equal('tools' in request || 'tool_choice' in request || 'parallel_tool_calls' in request, false)
})

test('parallel_tool_calls goes upstream whenever it is set, also without tools', () => {
  for (const parallel_tool_calls of [true, false]) {
    assert.equal(map({ parallel_tool_calls }).parallel_tool_calls, parallel_tool_calls)
  }
})

test('what the customer set goes upstream, and only that', () => {
  const request = map({
    max_tokens: 5,
    temperature: 0,
    reasoning_effort: 'none',
    top_p: 0.5,
    seed: 7,
    response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: { type: 'object' }, strict: true } },
  })
  assert.equal(request.max_output_tokens, 16, 'the least the upstream takes')
  assert.equal(request.temperature, 0)
  assert.deepEqual(request.reasoning, { effort: 'none' })
  assert.deepEqual(request.text, {
    format: { type: 'json_schema', name: 'answer', schema: { type: 'object' }, strict: true },
  })
  assert.equal('top_p' in request || 'seed' in request, false)
})

test('a further round adds its items and tools behind the conversation', () => {
  const reasoning = { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'gAAAA' }
  const output = { type: 'function_call_output', call_id: 'c', output: 'found' } as const
  const more = {
    turns: [turn([reasoning], [{ callId: 'c', output: 'found' }])],
    extraTools: [{ name: 'web_search', strict: true }],
    maxOutputTokens: 100,
    toolChoice: 'none',
    parallelToolCalls: false,
  } as const
  const request = map({}, more)
  assert.deepEqual(request.input, [said('user', 'hi'), reasoning, output])
  assert.equal(request.input[1], reasoning, 'an item goes back as it came')
  assert.deepEqual(
    request.tools?.map((tool) => tool.name),
    ['web_search'],
  )
  assert.equal(request.max_output_tokens, 100)
  assert.equal(request.tool_choice, 'none')
  assert.equal(request.parallel_tool_calls, false)
})

test('a round of another provider is replayed by what it said and called, without what only that provider can read', () => {
  const items = [{ type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'gAAAA' }]
  const calls = [{ id: 'c'.repeat(80), name: 'web_search', arguments: '{}' }]
  const elsewhere = { ...turn(items, [{ callId: 'c'.repeat(80), output: 'found' }]), provider: 'elsewhere' }
  const [, message, call, output] = map({}, { turns: [{ ...elsewhere, text: 'Let me look.', calls }] }).input
  assert.deepEqual(message, said('assistant', 'Let me look.'))
  assert.equal(call?.type, 'function_call')
  assert.equal(output?.type, 'function_call_output')
  const ids = [call, output].map((item) => (item as { call_id: string }).call_id)
  assert.equal(ids[0], ids[1], 'the result still answers its call')
  assert.ok(ids[0]!.length <= 64)
})

test('every text the upstream will count is in the texts that are priced', () => {
  const request = neutral(
    {
      messages: [
        { role: 'system', content: 'INSTRUCTION' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'PART-A' },
            { type: 'text', text: 'PART-B' },
          ],
        },
        {
          role: 'assistant',
          content: 'ANSWER',
          refusal: 'REFUSAL',
          tool_calls: [{ id: 'x', function: { name: 'CALLED', arguments: 'ARGUMENTS' } }],
        },
        { role: 'tool', tool_call_id: 'x', content: 'RESULT' },
      ],
      tools: [
        { type: 'function', function: { name: 'TOOL', description: 'DESCRIPTION', parameters: { SCHEMA: true } } },
      ],
      response_format: { type: 'json_schema', json_schema: { name: 'FORMAT', schema: { SHAPE: 1 } } },
    },
    {
      turns: [
        turn([
          {
            type: 'reasoning',
            id: 'rs',
            summary: [{ type: 'summary_text', text: 'SUMMARY' }],
            encrypted_content: 'SEALED',
          },
        ]),
      ],
    },
  )
  const texts = inputTexts(request).join('\n')
  const words =
    'INSTRUCTION PART-A PART-B ANSWER REFUSAL CALLED ARGUMENTS RESULT TOOL DESCRIPTION SCHEMA FORMAT SHAPE SUMMARY SEALED'
  for (const word of words.split(' ')) assert.ok(texts.includes(word), word)
  // Instructions, two parts, an answer of two parts, a call, a result, the replayed item, a tool.
  assert.equal(inputOf(request).itemCount, 1 + 2 + 2 + 1 + 1 + 1 + 1)
})

test('the same chat gives the same bytes', () => {
  const body = {
    messages: [
      { role: 'assistant', content: 'x', tool_calls: [call('i'.repeat(70))] },
      { role: 'tool', tool_call_id: 'i'.repeat(70), content: 'y' },
    ],
  }
  assert.equal(JSON.stringify(map(body)), JSON.stringify(map(body)))
})
