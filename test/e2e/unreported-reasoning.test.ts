import assert from 'node:assert/strict'
import { test } from 'node:test'
import { atEnd } from '../support/at-end.ts'
import { callChat, endedRows, framesOf, readContent } from '../support/chat-client.ts'
import type { UpstreamExchange } from '../support/scripted-upstream.ts'
import { startTestService, type TestAccount, type TestService, withoutTools } from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'

// A server of the chat-completions protocol reasons without showing it, and reports that with its last chunk. An input token costs 1
// atomic unit, an output token 5.

const environment = { UPSTREAM_PROTOCOL: 'chat-completions' }
const suite = serviceSuite(environment)
const words = 320
const reasoned = 20_000
const input = 40
const wholeCharge = input + 5 * (reasoned + words)

/** Leaves when the client has read this many words; undefined: reads everything. Returns how many the server has written. */
async function ask(service: TestService, account: TestAccount, readMax?: number, headers = {}): Promise<number> {
  let written = 0
  const leave = Promise.withResolvers<void>()
  suite.upstream.answer = async (exchange) => {
    written = await write(exchange, readMax ?? words, leave.promise)
  }
  const body = { messages: [{ role: 'user', content: 'Why?' }], stream: true, max_tokens: 30_000, ...withoutTools }
  const call = callChat(service, account, body, { headers })
  const frames = framesOf(await call.answer)
  if (readMax === undefined) await Array.fromAsync(frames)
  else {
    await readContent(frames, readMax * ' penny'.length)
    call.leave()
    leave.resolve()
  }
  await suite.upstream.exchanges.at(-1)!.hungUp
  return written
}

/** Waits for the client to leave after `pauseAfter` words. Returns how many words were written before the service hung up. */
async function write(exchange: UpstreamExchange, pauseAfter: number, left: Promise<void>): Promise<number> {
  const { outgoing } = exchange
  const send = (chunk: object) => outgoing.write(`data: ${JSON.stringify({ id: 'c', ...chunk })}\n\n`)
  const delta = (content: object, finish_reason: string | null = null) => ({
    choices: [{ index: 0, delta: content, finish_reason }],
  })
  outgoing.writeHead(200, { 'content-type': 'text/event-stream' })
  send(delta({ role: 'assistant' }))
  for (let word = 0; word < words; word += 1) {
    if (word === pauseAfter) await left.then(() => exchange.read())
    if (outgoing.destroyed) return word
    send(delta({ content: ' penny' }))
  }
  send(delta({}, 'stop'))
  const completion_tokens = reasoned + words
  send({
    choices: [],
    usage: { prompt_tokens: input, completion_tokens, completion_tokens_details: { reasoning_tokens: reasoned } },
  })
  outgoing.end('data: [DONE]\n\n')
  return words
}

async function chargeOfLast(service: TestService, account: TestAccount, count: number): Promise<[string, number]> {
  const { status, charged_atomic } = (await endedRows(service, account, count)).at(-1)!
  return [status, Number(charged_atomic)]
}

test('clients that leave before hidden reasoning is reported pay for it: the answer is read on until enough is known; then it is estimated, also by another node', async (t) => {
  const { service } = suite
  const account = await service.openAccount('25')
  assert.equal(await ask(service, account, 300), words)
  assert.deepEqual(await chargeOfLast(service, account, 1), ['cancelled', wholeCharge])
  assert.equal(await ask(service, account, 300, { 'x-stainless-retry-count': '0' }), words)
  assert.deepEqual(await chargeOfLast(service, account, 2), ['cancelled', wholeCharge])
  for (let answers = 0; answers < 6; answers += 1) await ask(service, account)
  assert.deepEqual(await chargeOfLast(service, account, 8), ['succeeded', wholeCharge])
  const restarted = await startTestService({ upstreamUrl: suite.upstream.url, besideOf: service, environment })
  atEnd(t, () => restarted.stop())
  for (const [place, node] of [service, restarted].entries()) {
    assert.ok((await ask(node, account, 10)) < words, 'the server was stopped')
    const [status, charged] = await chargeOfLast(service, account, 9 + place)
    const least = 5 * (reasoned + 10)
    assert.ok(status === 'cancelled' && charged >= least && charged < least + 200, `${charged} was charged`)
  }
})
