import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import fc from 'fast-check'
import OpenAI from 'openai'
import { ServiceError } from '../errors.ts'
import type { ChatEvent, FinishReason } from '../inference/chat-events.ts'
import { parse, zero } from '../money/usdc.ts'
import { createResponsesReader } from '../providers/responses-events.ts'
import {
  type ChunkRenderer,
  completionBody,
  createChunkRenderer,
  createMessageAssembler,
  keepaliveComment,
} from './chat-chunks.ts'

const head = { id: 'chatcmpl-1', created: 1_763_180_000, model: 'gpt-5.6-terra' }
const usage = { promptTokens: 30, cachedTokens: 16, completionTokens: 12, reasoningTokens: 4 }
const cost = { prompt: parse('0.0009'), completion: parse('0.0015'), search: parse('0.00875') }
const usageBody = {
  prompt_tokens: 30,
  completion_tokens: 12,
  total_tokens: 42,
  prompt_tokens_details: { cached_tokens: 16 },
  completion_tokens_details: { reasoning_tokens: 4 },
  cost: 0.01115,
  cost_details: {
    inference: 0.0024,
    search: 0.00875,
    upstream_inference_prompt_cost: 0.0009,
    upstream_inference_completions_cost: 0.0015,
  },
}

function recorded(name: string): ChatEvent[] {
  const reader = createResponsesReader()
  const text = readFileSync(new URL(`../providers/__fixtures__/${name}.sse`, import.meta.url), 'utf8')
  return [...reader.push(text), ...reader.end()]
}

function reasonOf(events: readonly ChatEvent[]): FinishReason {
  const last = events.at(-1)
  return last?.type === 'finish' ? last.reason : 'stop'
}

/** A complete stream as a client receives it. */
function stream(renderer: ChunkRenderer, events: readonly ChatEvent[]): string {
  return (
    renderer.role +
    renderer.events(events) +
    keepaliveComment +
    renderer.finish(reasonOf(events)) +
    renderer.usage(usage, cost) +
    renderer.done
  )
}

function chunks(text: string): Record<string, unknown>[] {
  return text
    .split('\n\n')
    .filter((frame) => frame.startsWith('data: {'))
    .map((frame) => JSON.parse(frame.slice('data: '.length)))
}

/** The customer's own client library, given a prepared answer. */
function client(body: string, contentType: string): OpenAI {
  const fetch = async () => new Response(body, { headers: { 'content-type': contentType } })
  return new OpenAI({ apiKey: 'penny_x', baseURL: 'http://127.0.0.1/v1', fetch, maxRetries: 0 })
}

const question = { model: head.model, messages: [{ role: 'user' as const, content: 'hi' }] }

const streamed = (name: string, includeUsage = true) => {
  const text = stream(createChunkRenderer({ ...head, includeUsage }), recorded(name))
  return client(text, 'text/event-stream').chat.completions.stream(question)
}

function buffered(events: readonly ChatEvent[]) {
  const assembler = createMessageAssembler()
  assembler.add(events)
  const body = completionBody({ ...head, message: assembler.finish(), finishReason: reasonOf(events), usage, cost })
  return client(JSON.stringify(body), 'application/json').chat.completions.create(question)
}

test('the first chunk carries the role, every chunk the same head, and the last is DONE', () => {
  const text = stream(createChunkRenderer({ ...head, includeUsage: false }), recorded('text'))
  const [first, second, ...rest] = chunks(text)
  const shared = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1_763_180_000, model: 'gpt-5.6-terra' }
  const choice = (delta: object, finish_reason: string | null = null) => ({
    ...shared,
    system_fingerprint: 'fp_penny',
    choices: [{ index: 0, delta, logprobs: null, finish_reason }],
  })
  assert.deepEqual(first, choice({ role: 'assistant', content: '' }))
  assert.deepEqual(second, choice({ content: 'Penny' }))
  assert.deepEqual(rest.at(-1), choice({}, 'stop'))
  assert.ok(text.endsWith('\n\ndata: [DONE]\n\n'))
  assert.doesNotMatch(text, /"usage"|^(event|id|retry):/m)
})

test('usage comes in exactly one chunk, when asked for, with the cost', () => {
  const all = chunks(stream(createChunkRenderer({ ...head, includeUsage: true }), recorded('text')))
  const last = all.pop()
  assert.deepEqual(last?.choices, [])
  assert.deepEqual(last?.usage, usageBody)
  for (const chunk of all) assert.equal('usage' in chunk, false)
})

test('reasoning is sent under both names that clients read', () => {
  const [chunk] = chunks(
    createChunkRenderer({ ...head, includeUsage: false }).events([{ type: 'reasoning', text: 'Hm' }]),
  )
  const delta = { reasoning_content: 'Hm', reasoning: 'Hm' }
  assert.deepEqual(chunk?.choices, [{ index: 0, delta, logprobs: null, finish_reason: null }])
})

test('tool activity is an empty delta that every client ignores', () => {
  const activity = { type: 'web_search', status: 'started', call: 1, query: 'usdc' } as const
  const [chunk] = chunks(createChunkRenderer({ ...head, includeUsage: true }).events([{ type: 'activity', activity }]))
  assert.deepEqual(chunk?.tool_activity, activity)
  assert.deepEqual(chunk?.choices, [{ index: 0, delta: {}, logprobs: null, finish_reason: null }])
})

test('no frame is cut by a reader that splits lines as Python does', () => {
  const odd = 'a\u2028b\u2029c\u0085d'
  const renderer = createChunkRenderer({ ...head, includeUsage: true })
  const annotation = { url: 'https://example.org', title: odd, startIndex: 0, endIndex: 1 }
  const rendered =
    renderer.events([
      { type: 'text', text: odd },
      { type: 'reasoning', text: odd },
      { type: 'refusal', text: odd },
      { type: 'tool-call', index: 0, id: odd, name: odd },
      { type: 'tool-arguments', index: 0, text: odd },
      { type: 'activity', activity: { type: 'web_search', status: 'started', call: 1, query: odd } },
      { type: 'annotation', annotation },
    ]) +
    renderer.finish('stop') +
    renderer.error({ error: { message: odd } })
  assert.doesNotMatch(rendered, /[\u0085\u2028\u2029]/)
  const told = JSON.stringify(chunks(rendered)).split(JSON.stringify(odd).slice(1, -1))
  assert.equal(told.length - 1, 10)
})

test('an error is a frame without choices', () => {
  const frame = createChunkRenderer({ ...head, includeUsage: true }).error({
    error: { message: 'no', code: 'upstream_error' },
  })
  assert.equal(frame, 'data: {"error":{"message":"no","code":"upstream_error"}}\n\n')
})

for (const name of [
  'text',
  'unicode',
  'reasoning-summary',
  'refusal',
  'tool-call',
  'interleaved-calls',
  'annotations',
  'incomplete-length',
]) {
  test(`the OpenAI library reads the same message from the stream and from the body of "${name}"`, async () => {
    const fromStream = await streamed(name).finalChatCompletion()
    const fromBody = await buffered(recorded(name))
    const [left, right] = [fromStream.choices[0]!, fromBody.choices[0]!]
    assert.equal(left.finish_reason, right.finish_reason)
    assert.equal(left.message.content || null, right.message.content || null)
    assert.equal(left.message.refusal ?? null, right.message.refusal)
    const called = ({ message }: typeof right) =>
      message.tool_calls?.map((call) =>
        call.type === 'function' ? [call.id, call.function.name, call.function.arguments] : [],
      )
    assert.deepEqual(called(left) ?? [], called(right) ?? [])
    assert.deepEqual(left.message.annotations ?? [], right.message.annotations ?? [])
    assert.deepEqual(fromStream.usage, usageBody)
    assert.deepEqual(fromBody.usage, usageBody)
  })
}

test('the OpenAI library throws our error out of a stream', async () => {
  const renderer = createChunkRenderer({ ...head, includeUsage: true })
  const text =
    renderer.role +
    renderer.error({
      error: { message: 'The model failed.', type: 'server_error', param: null, code: 'upstream_error' },
    })
  const reading = client(text, 'text/event-stream').chat.completions.stream(question).finalChatCompletion()
  await assert.rejects(reading, /The model failed\./)
})

test('a buffered message omits empty members', () => {
  const message = (name: string) => {
    const assembler = createMessageAssembler()
    assembler.add(recorded(name))
    const body = completionBody({ ...head, message: assembler.finish(), finishReason: 'stop', usage, cost }) as {
      choices: { message: object }[]
    }
    return body.choices[0]?.message
  }
  assert.deepEqual(message('text'), { role: 'assistant', content: 'Penny keeps the books straight.', refusal: null })
  assert.deepEqual(message('refusal'), { role: 'assistant', content: null, refusal: "I can't help with that." })
  assert.deepEqual(message('tool-call'), {
    role: 'assistant',
    content: null,
    refusal: null,
    reasoning_content: '**Choosing a tool**',
    reasoning: '**Choosing a tool**',
    tool_calls: [{ id: 'call_a1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Bern"}' } }],
  })
  assert.deepEqual(message('error-flat'), { role: 'assistant', content: '', refusal: null })
})

test('a truncated call is not presented as complete', () => {
  const assembler = createMessageAssembler()
  assembler.add(recorded('incomplete-call'))
  assert.deepEqual(assembler.finish().toolCalls, [{ id: 'call_a1', name: 'get_weather', arguments: '{"city":"Bern"}' }])
})

test('an endless answer is refused, not kept', () => {
  const assembler = createMessageAssembler()
  const text = 'x'.repeat(1024 * 1024)
  assert.throws(() => {
    for (;;) assembler.add([{ type: 'text', text }])
  }, ServiceError)
})

test('any text survives the way to the client', () => {
  const renderer = createChunkRenderer({ ...head, model: 'a "quoted" \u2028 model', includeUsage: true })
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      const frames = renderer.events([
        { type: 'text', text },
        { type: 'tool-arguments', index: 0, text },
      ])
      const [content, call] = chunks(frames) as {
        choices: [{ delta: { content: string; tool_calls: [{ function: { arguments: string } }] } }]
      }[]
      assert.equal(content?.choices[0].delta.content, text)
      assert.equal(call?.choices[0].delta.tool_calls[0].function.arguments, text)
    }),
  )
})

test('a charge of nothing has the cost 0', () => {
  const [chunk] = chunks(
    createChunkRenderer({ ...head, includeUsage: true }).usage(usage, { prompt: zero, completion: zero, search: zero }),
  )
  const details = Object.keys(usageBody.cost_details).map((name) => [name, 0])
  assert.deepEqual(chunk?.usage, { ...usageBody, cost: 0, cost_details: Object.fromEntries(details) })
})
