import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { allFrames, callChat, chunkOf, framesOf } from '../support/chat-client.ts'
import {
  completed,
  created,
  functionCall,
  inTurn,
  reasoning,
  text,
  type UpstreamExchange,
} from '../support/scripted-upstream.ts'
import { startScriptedWeb } from '../support/scripted-web.ts'
import { type TestAccount, withoutTools } from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'

// The cost of a stream while it is written. Prices of the default model: 1 atomic unit for a token of input, 5 for one of output.

const web = startScriptedWeb()
const suite = serviceSuite({}, undefined, web.tools)
let account: TestAccount
beforeEach(async () => {
  account = await suite.service.openAccount('25')
})

const messages = [{ role: 'user', content: 'What is a penny?' }]
const asked = { messages, stream: true, stream_options: { include_cost: true } }

type RunningCost = { cost: number; cost_atomic: string; prompt_tokens: number; completion_tokens: number }

function costOf(frame: string): RunningCost | undefined {
  return (chunkOf(frame) as { running_cost?: RunningCost } | undefined)?.running_cost
}

test('a stream with include_cost reports its cost with the first output, in a chunk that adds nothing to the message', async () => {
  const exchange = Promise.withResolvers<UpstreamExchange>()
  suite.upstream.answer = (each) => {
    each.send(created, text('one two three'))
    exchange.resolve(each)
  }
  const call = callChat(suite.service, account, { ...asked, ...withoutTools })
  const frames = framesOf(await call.answer)
  let frame = ''
  while (costOf(frame) === undefined) frame = (await frames.next()).value ?? assert.fail('the stream ended')
  // "What is a penny?" is 5 tokens without its framing.
  assert.deepEqual(costOf(frame), { cost: 0.00002, cost_atomic: '20', prompt_tokens: 5, completion_tokens: 3 })
  assert.deepEqual(chunkOf(frame)!.choices, [{ index: 0, delta: {}, logprobs: null, finish_reason: null }])
  const { send, end } = await exchange.promise
  send(completed())
  end()
  const rest = await Array.fromAsync(frames)
  assert.equal(rest.at(-1), 'data: [DONE]')
  // Within a second, or while the cost has not changed, no line is sent. None may follow the end.
  assert.equal(costOf(rest.at(-2)!), undefined)
})

test('the cost so far has the rounds and searches that are finished', async () => {
  const exchange = Promise.withResolvers<UpstreamExchange>()
  suite.upstream.answer = inTurn([
    [created, ...functionCall('web_search', { query: 'penny' })],
    (each) => {
      each.send(created, text('one two three'))
      exchange.resolve(each)
    },
  ])
  const call = callChat(suite.service, account, asked)
  const frames = framesOf(await call.answer)
  let cost: RunningCost | undefined
  while (cost === undefined) cost = costOf((await frames.next()).value ?? assert.fail('the stream ended'))
  assert.equal(cost.completion_tokens, 5 + 3)
  assert.equal(Number(cost.cost_atomic), cost.prompt_tokens + 5 * 8 + 8_750)
  const { send, end } = await exchange.promise
  send(completed())
  end()
  await Array.fromAsync(frames)
})

test('running costs are sent only on request: not to other streams, not to a replay', async () => {
  suite.upstream.answer = inTurn([
    [created, reasoning('Hm'), text('Hi')],
    [created, text('Hi')],
  ])
  const plain = await allFrames(callChat(suite.service, account, { messages, stream: true, ...withoutTools }))
  const headers = { 'idempotency-key': 'cost' }
  const body = { ...asked, ...withoutTools }
  await allFrames(callChat(suite.service, account, body, { headers }))
  const replayed = await allFrames(callChat(suite.service, account, body, { headers }))
  for (const frames of [plain, replayed]) {
    assert.equal(frames.at(-1), 'data: [DONE]')
    assert.ok(frames.every((frame) => costOf(frame) === undefined))
  }
})

test('include_cost must be a boolean', async () => {
  const call = callChat(suite.service, account, { messages, stream: true, stream_options: { include_cost: 'yes' } })
  assert.equal((await call.answer).statusCode, 400)
})
