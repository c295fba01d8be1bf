import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Answer, emptyAnswer, type Lane } from './conversation.ts'
import { bodyOf, emptySettings, firstKey, type Settings, sendProblem, settingsProblems } from './playground-form.ts'

const settings: Settings = { ...emptySettings, keyId: 'k' }
const lane: Lane = { model: 'gpt-5.6-terra', messages: [], requestIds: [] }
const abilities = { efforts: ['low', 'high'], hasWebTools: true }
const done = (changed: Partial<Answer>): Answer => ({ ...emptyAnswer('a', 'm'), state: 'done', ...changed })

test('quote, request and copied code have the same body, without empty fields', () => {
  assert.deepEqual(bodyOf(settings, lane, 'Hi', abilities), {
    model: 'gpt-5.6-terra',
    messages: [{ role: 'user', content: 'Hi' }],
    max_tokens: 1024,
    stream: true,
    stream_options: { include_usage: true, include_cost: true },
    web_search: false,
    web_fetch: false,
  })
  const full = bodyOf({ ...settings, system: 'Be short.', temperature: '0.2', stream: false }, lane, 'Hi', abilities)
  assert.deepEqual(full.messages[0], { role: 'system', content: 'Be short.' })
  assert.equal(full.temperature, 0.2)
  assert.ok(!('stream' in full) && !('stream_options' in full))
})

test('reasoning effort goes only to models that take it', () => {
  assert.equal(bodyOf({ ...settings, effort: 'high' }, lane, 'Hi', abilities).reasoning_effort, 'high')
  for (const efforts of [[], ['low']])
    assert.ok(!('reasoning_effort' in bodyOf({ ...settings, effort: 'high' }, lane, 'Hi', { ...abilities, efforts })))
})

test('past answers are sent as far as they came, and tool calls with the results that were written', () => {
  const call = { id: 'c1', name: 'get_weather', arguments: '{"city":"Oslo"}', result: '4 °C' }
  const messages = [
    { id: '1', role: 'user', content: 'Weather?' } as const,
    done({ toolCalls: [call] }),
    done({ state: 'stopped', content: 'It is' }),
    done({ state: 'failed' }),
  ]
  assert.deepEqual(bodyOf(settings, { ...lane, messages }, 'And now?', abilities).messages, [
    { role: 'user', content: 'Weather?' },
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'c1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Oslo"}' } }],
    },
    { role: 'tool', tool_call_id: 'c1', content: '4 °C' },
    { role: 'assistant', content: 'It is' },
    { role: 'user', content: 'And now?' },
  ])
})

test('an answered conversation is not sent again without a new message, and tool calls want their results first', () => {
  assert.equal(sendProblem(settings, { lanes: [lane], draft: ' ' }, undefined), 'Enter a message.')
  assert.equal(sendProblem(settings, { lanes: [lane], draft: 'More' }, undefined), undefined)
  const call = { id: 'c1', name: 'f', arguments: '{}', result: '' }
  const waiting = { ...lane, messages: [done({ toolCalls: [call] })] }
  assert.match(
    sendProblem(settings, { lanes: [lane, waiting], draft: 'More' }, undefined)!,
    /results of the tool calls/,
  )
})

test('nothing is sent that would be refused for its form, and each problem is at its field', () => {
  assert.deepEqual(settingsProblems(settings), {})
  for (const [field, value] of [
    ['maxTokens', '0'],
    ['maxTokens', '1.5'],
    ['temperature', '3'],
    ['temperature', 'hot'],
    ['keyId', ''],
    ['tools', '{'],
  ] as const)
    assert.deepEqual(Object.keys(settingsProblems({ ...settings, [field]: value })), [field], `${field} ${value}`)
  const schema = (text: string) => settingsProblems({ ...settings, format: 'json_schema', schema: text }).schema
  assert.equal(schema(''), 'Paste the JSON schema of the answer.')
  assert.match(schema('{"type": "object",}')!, /not valid JSON/)
  assert.equal(schema('{"type": "object"}'), undefined)
  assert.equal(settingsProblems({ ...settings, schema: 'unused' }).schema, undefined)
})

test('a model or web tools that the paying key forbids are not sent', () => {
  const key = { name: 'cheap only', allowed_models: ['gpt-5.6-luna'] }
  const ask = (model: string) => sendProblem(settings, { lanes: [{ ...lane, model }], draft: 'Hi' }, key)
  assert.equal(
    ask('gpt-5.6-terra'),
    'The key “cheap only” does not allow gpt-5.6-terra. Choose another model or another key.',
  )
  assert.equal(ask('gpt-5.6-luna'), undefined)
  const web = { ...settings, search: true, fetch: true }
  const { web_search, web_fetch } = bodyOf(web, lane, 'Hi', { ...abilities, hasWebTools: false })
  assert.deepEqual([web_search, web_fetch], [false, false])
})

// The oldest key was a batch job's with $0.03 a day: two messages of the playground spent it.
test('a key with a spending limit pays for the playground only after it was chosen', () => {
  const key = (id: string, created_at: string, limit: string | null) => ({ id, created_at, limit })
  const batch = key('batch', '2026-01-01', '0.03')
  const keys = [key('new', '2026-03-01', null), batch, key('old', '2026-02-01', null)]
  assert.equal(firstKey(keys, ''), 'old')
  assert.equal(firstKey(keys, 'batch'), 'batch')
  assert.equal(firstKey(keys, 'revoked'), 'old')
  assert.equal(firstKey([batch], ''), '')
})
