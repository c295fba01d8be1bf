import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseChatRequest } from '../inference/chat-request.ts'
import { toChatCompletionsRequest } from './chat-completions-request.ts'
import { inputTexts, type RequestOptions, readableTexts, type Turn, toModelRequest } from './model-request.ts'

const models = { defaultModel: 'm', ids: ['m'], maxOutputTokens: () => 64_000 }
const map = (body: object, more: Partial<RequestOptions> = {}) => {
  const chat = parseChatRequest({ messages: [{ role: 'user', content: 'hi' }], ...body }, models)
  return toChatCompletionsRequest(toModelRequest(chat, { promptCacheKey: 'k', ...more }), 'theirs', 'here')
}

test('the shortest request asks for a stream with usage, and has no member that it does not need', () => {
  assert.deepEqual(map({}), {
    model: 'theirs',
    messages: [{ role: 'user', content: 'hi' }],
    stream: true,
    stream_options: { include_usage: true },
    max_tokens: 8192,
    reasoning_effort: 'low',
    prompt_cache_key: 'k',
  })
})

test('a conversation with tools keeps its order, its ids and its texts', () => {
  const { messages } = map({
    messages: [
      { role: 'developer', content: 'Be short.' },
      { role: 'user', content: [{ type: 'text', text: 'One.' }] },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'a'.repeat(64), function: { name: 'f', arguments: '{}' } }],
      },
      { role: 'tool', tool_call_id: 'a'.repeat(64), content: 'done' },
      { role: 'assistant', refusal: 'No.' },
      { role: 'system', content: 'Later.' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'Two.' },
          { type: 'text', text: 'Three.' },
        ],
      },
    ],
  })
  const call = { id: 'a'.repeat(64), type: 'function', function: { name: 'f', arguments: '{}' } }
  assert.deepEqual(messages, [
    { role: 'system', content: 'Be short.' },
    { role: 'user', content: 'One.' },
    { role: 'assistant', content: null, tool_calls: [call] },
    { role: 'tool', tool_call_id: 'a'.repeat(64), content: 'done' },
    { role: 'assistant', content: 'No.' },
    { role: 'system', content: 'Later.' },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'Two.' },
        { type: 'text', text: 'Three.' },
      ],
    },
  ])
})

test('tools, their choice and the format of the answer are in the protocol’s own shape', () => {
  const schema = { type: 'object', properties: { a: { type: 'number' } } }
  const request = map({
    max_tokens: 5,
    temperature: 0,
    tools: [
      { type: 'function', function: { name: 'add', parameters: schema, strict: true } },
      { type: 'function', function: { name: 'now' } },
    ],
    tool_choice: { type: 'function', function: { name: 'add' } },
    parallel_tool_calls: false,
    response_format: { type: 'json_schema', json_schema: { name: 'answer', schema, strict: true } },
  })
  assert.equal(request.max_tokens, 16, 'the answer is cut here, at the asked count')
  assert.equal(request.temperature, 0)
  assert.deepEqual(request.tools, [
    { type: 'function', function: { name: 'add', parameters: schema, strict: true } },
    { type: 'function', function: { name: 'now', parameters: { type: 'object', properties: {} } } },
  ])
  assert.deepEqual(request.tool_choice, { type: 'function', function: { name: 'add' } })
  assert.equal(request.parallel_tool_calls, false)
  assert.deepEqual(request.response_format, {
    type: 'json_schema',
    json_schema: { name: 'answer', schema, strict: true },
  })
})

test('a further round is replayed as its provider wrote it; another provider is given the same in neutral words', () => {
  const own = { role: 'assistant', content: null, reasoning_content: 'Hm.', tool_calls: [] }
  const calls = [{ id: 'c', name: 'web_search', arguments: '{}' }]
  const turn: Turn = {
    provider: 'here',
    items: [own],
    unlistedCalls: [],
    text: 'Wait.',
    calls,
    results: [{ callId: 'c', output: 'found' }],
  }
  const result = { role: 'tool', tool_call_id: 'c', content: 'found' }
  assert.deepEqual(map({}, { turns: [turn] }).messages.slice(1), [own, result])
  assert.deepEqual(map({}, { turns: [{ ...turn, provider: 'elsewhere' }] }).messages.slice(1), [
    {
      role: 'assistant',
      content: 'Wait.',
      tool_calls: [{ id: 'c', type: 'function', function: { name: 'web_search', arguments: '{}' } }],
    },
    result,
  ])
})

test('reasoning that only the provider can read is in the upper bound of the input, and not in our own count', () => {
  const item = {
    role: 'assistant',
    content: null,
    reasoning: 'READABLE',
    reasoning_details: [{ type: 'reasoning.encrypted', data: 'SEALED' }],
    tool_calls: [{ id: 'c', function: { name: 'f', arguments: '{}' }, extra_content: { signature: 'SIGNED' } }],
  }
  const turn: Turn = { provider: 'here', items: [item], unlistedCalls: [], text: '', calls: [], results: [] }
  const chat = parseChatRequest({ messages: [{ role: 'user', content: 'hi' }] }, models)
  const request = toModelRequest(chat, { promptCacheKey: 'k', turns: [turn] })
  assert.deepEqual(inputTexts(request), ['hi', 'READABLE', 'SEALED', 'f', '{}', 'SIGNED'])
  assert.deepEqual(readableTexts(request), ['hi', 'READABLE', 'f', '{}'])
})
