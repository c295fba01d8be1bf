import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { ScriptedUpstream, UpstreamExchange } from '../support/scripted-upstream.ts'
import { pennyResult, startScriptedWeb } from '../support/scripted-web.ts'
import { costOfLines, getRow, postChat, type RequestBody, withoutTools } from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'

// The service before a server that speaks chat completions. Prices of the default model: 1 atomic unit for a token of input, 5 for
// one of output.

let apiKey: string
const web = startScriptedWeb()
const suite = serviceSuite(
  { UPSTREAM_PROTOCOL: 'chat-completions' },
  async (service) => {
    ;({ apiKey } = await service.openAccount('25'))
  },
  web.tools,
)

const messages = [{ role: 'user', content: 'What is a penny?' }]
const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 }
const countedInput = 11

const delta = (content: object, finish_reason: string | null = null) => ({
  id: 'chatcmpl-1',
  choices: [{ index: 0, delta: content, finish_reason }],
})
const usageChunk = { id: 'chatcmpl-1', choices: [], usage }

/** Writes chunks as a server of this protocol does. */
function sends(...chunks: readonly (object | '[DONE]')[]): ScriptedUpstream['answer'] {
  return ({ outgoing }: UpstreamExchange) => {
    outgoing.writeHead(200, { 'content-type': 'text/event-stream' })
    for (const chunk of chunks) outgoing.write(`data: ${chunk === '[DONE]' ? chunk : JSON.stringify(chunk)}\n\n`)
    outgoing.end()
  }
}

async function ask(answer: ScriptedUpstream['answer'], body: object = {}) {
  suite.upstream.answer = answer
  const response = await postChat(suite.service, apiKey, { messages, ...withoutTools, ...body })
  const text = await response.text()
  return { status: response.status, text, row: await getRow(suite.service, apiKey, response) }
}

function assertCharge(row: RequestBody, status: string, charged: number, source: string): void {
  assert.deepEqual([row.status, Number(row.charged_atomic), row.usage?.source], [status, charged, source])
}

test('an answer is charged by the usage that the server reports', async () => {
  const { text, row } = await ask(
    sends(delta({ role: 'assistant', reasoning: 'Hm.' }), delta({ content: 'A coin.' }, 'stop'), usageChunk, '[DONE]'),
  )
  assertCharge(row, 'succeeded', 10 + 5 * 5, 'upstream')
  const { message } = JSON.parse(text).choices[0]
  assert.deepEqual([message.content, message.reasoning_content], ['A coin.', 'Hm.'])
  const { incoming, body } = suite.upstream.exchanges.at(-1)!
  assert.equal(incoming.url, '/v1/chat/completions')
  assert.deepEqual(body.stream_options, { include_usage: true })
})

test('without usage it is charged by our count, streamed or not', async () => {
  for (const stream of [false, true]) {
    const { row } = await ask(sends(delta({ content: 'Hi' }), delta({}, 'stop'), '[DONE]'), { stream })
    assertCharge(row, 'succeeded', countedInput + 5, 'counted')
  }
})

test('usage that cannot be true is not charged', async () => {
  const absurd = { ...usage, completion_tokens: 1_000_000 }
  const { row } = await ask(sends(delta({ content: 'Hi' }, 'stop'), { ...usageChunk, usage: absurd }))
  assertCharge(row, 'succeeded', countedInput + 5, 'counted')
})

test('a failure before output costs nothing, whatever its form', async () => {
  const failures: readonly [status: number, answer: ScriptedUpstream['answer']][] = [
    [502, sends(delta({ role: 'assistant' }), { error: { message: 'Down', code: 502 } })],
    [502, sends(delta({ role: 'assistant' }))],
    [503, ({ outgoing }) => void outgoing.writeHead(402).end('{"error":{"message":"Insufficient Balance"}}')],
    [503, ({ outgoing }) => void outgoing.writeHead(429).end('{"message":"slow down"}')],
    [502, ({ outgoing }) => void outgoing.writeHead(200, { 'content-type': 'application/json' }).end('{}')],
  ]
  for (const [expected, answer] of failures) {
    const { status, row } = await ask(answer)
    assert.equal(status, expected)
    assert.deepEqual([row.status, row.charged_atomic], ['failed', '0'])
  }
})

test('a stream that breaks after output is charged for what was written, and says that it broke', async () => {
  const broken = sends(delta({ content: 'Hi' }), { error: { message: 'Down', code: 'server_error' } })
  const { row, text } = await ask(broken, { stream: true })
  assertCharge(row, 'failed', countedInput + 5, 'counted')
  assert.match(text, /"error":\{/)
})

test('calls of our own tools run, and the next round is given what the model wrote and found', async () => {
  const call = {
    index: 0,
    id: 'call_1',
    type: 'function',
    function: { name: 'web_search', arguments: '{"query":"penny"}' },
    extra_content: { google: { thought_signature: 'c2lnbmVk' } },
  }
  const rounds = [
    sends(
      delta({ role: 'assistant', reasoning_content: 'Hm.', tool_calls: [call] }, 'tool_calls'),
      usageChunk,
      '[DONE]',
    ),
    sends(delta({ content: 'A coin.' }, 'stop'), usageChunk, '[DONE]'),
  ]
  const before = suite.upstream.exchanges.length
  const { status, row } = await ask((exchange) => rounds.shift()!(exchange), { web_search: true })
  assert.equal(status, 200)
  assert.equal(row.cost.search_calls, 1)
  assert.equal(BigInt(row.charged_atomic), costOfLines(row))
  const second = suite.upstream.exchanges.slice(before)[1]!.body.messages as Record<string, unknown>[]
  const [written, result] = second.slice(-2)
  assert.deepEqual([written!.role, written!.reasoning_content], ['assistant', 'Hm.'])
  const { index: _, ...replayed } = call
  assert.deepEqual(written!.tool_calls, [replayed])
  assert.deepEqual([result!.role, result!.tool_call_id], ['tool', 'call_1'])
  assert.match(String(result!.content), new RegExp(pennyResult.url.replaceAll('.', '\\.')))
})

test('an exhausted quota in a further round does not say that nothing was charged: the first round was', async () => {
  const call = { index: 0, id: 'call_1', function: { name: 'web_search', arguments: '{"query":"penny"}' } }
  const rounds = [
    sends(delta({ content: 'I look.', tool_calls: [call] }, 'tool_calls'), usageChunk, '[DONE]'),
    ({ outgoing }: UpstreamExchange) =>
      void outgoing.writeHead(402).end('{"error":{"message":"Insufficient Balance"}}'),
  ]
  const { text, row } = await ask((exchange) => rounds.shift()!(exchange), { web_search: true, stream: true })
  assertCharge(row, 'failed', 10 + 5 * 5 + 8_750, 'upstream')
  assert.match(text, /"message":"The quota of this service/)
  assert.doesNotMatch(text, /othing was charged/)
})
