import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { assertBooksClosed } from '../support/audit.ts'
import { callChat, endedRow, framesOf, nextArrival } from '../support/chat-client.ts'
import {
  completed,
  created,
  reasoning,
  type ScriptedUpstream,
  startScriptedUpstream,
  text,
  type UpstreamExchange,
} from '../support/scripted-upstream.ts'
import { getRow, postChat, startTestService, type TestService, withoutTools } from '../support/service.ts'
import { until } from '../support/until.ts'

// A service that is stopped while it serves, as every deployment does. That is our doing, not the customer's: what was not delivered
// costs nothing, and every client gets an error. Prices of the default model: 1 atomic unit for a token of input, 5 for one of output.

let service: TestService
let upstream: ScriptedUpstream
before(async () => {
  upstream = await startScriptedUpstream()
  service = await startTestService({ upstreamUrl: upstream.url })
})
after(async () => {
  try {
    await assertBooksClosed(service.database)
  } finally {
    await service.stop()
    await upstream.close()
  }
})

const question = { messages: [{ role: 'user', content: 'What is a penny?' }], ...withoutTools }
/** Its text is held back until its round has ended. */
const heldJson = { ...question, stream: true, web_fetch: true, response_format: { type: 'json_object' } }
/** As our tokenizer counts it, with the framing. */
const countedInput = 11

test('a buffered request that a restart interrupts gets a retryable error and costs nothing', async () => {
  const node = await startNode(0)
  const account = await service.openAccount('25')
  upstream.answer = (exchange) => exchange.send(created, text('one two three'))
  const asked = await begin(() => postChat(node, account.apiKey, question))
  await node.stop()
  const answer = await asked.answer
  assert.deepEqual([answer.status, (await errorOf(answer)).code], [503, 'overloaded'])
  assert.equal(answer.headers.get('x-should-retry'), 'true')
  assert.ok(Number(answer.headers.get('retry-after')) > 0)
  assert.equal(answer.headers.get('x-router-charged-usdc'), '0')
  const row = await getRow(service, account.apiKey, answer)
  assert.deepEqual([row.status, row.error?.code, row.charged_atomic], ['failed', 'overloaded', '0'])
  assert.equal(row.settlement.state, 'none')
})

test('a stream that a restart breaks off ends with an error, and costs what it delivered', async () => {
  const node = await startNode(0)
  const account = await service.openAccount('25')
  upstream.answer = (exchange) => exchange.send(created, text(' one two three'))
  const answer = await callChat(node, account, { ...question, stream: true }).answer
  const frames = framesOf(answer)
  for (let seen = ''; !seen.includes('three'); ) seen += (await frames.next()).value
  const [rest] = await Promise.all([Array.fromAsync(frames), node.stop()])
  assert.match(rest.at(-1)!, /^data: \{"error":\{"message":"The service is restarting/)
  const row = await endedRow(service, account)
  assert.deepEqual([row.status, row.error?.code], ['failed', 'overloaded'])
  assert.equal(Number(row.charged_atomic), countedInput + 5 * 3)
})

test('a stream without output yet is an ordinary 503, and void', async () => {
  const node = await startNode(0)
  const account = await service.openAccount('25')
  upstream.answer = () => {}
  const asked = await begin(() => postChat(node, account.apiKey, { ...question, stream: true }))
  await node.stop()
  const answer = await asked.answer
  assert.deepEqual([answer.status, (await errorOf(answer)).code], [503, 'overloaded'])
  assert.equal((await getRow(service, account.apiKey, answer)).charged_atomic, '0')
})

for (const headers of [{}, { 'x-stainless-retry-count': '0' }] as const) {
  const marks = Object.keys(headers).join() || 'nothing'

  test(`a stream of JSON that is held back when a restart breaks it off delivered nothing, and costs nothing, marked by ${marks}`, async () => {
    const node = await startNode(0)
    const account = await service.openAccount('25')
    const sent = Promise.withResolvers<UpstreamExchange>()
    upstream.answer = (exchange) => {
      exchange.send(created, text('{"answer": "one two three'))
      sent.resolve(exchange)
    }
    const asked = postChat(node, account.apiKey, heldJson, { headers })
    await (await sent.promise).read()
    await node.stop()
    const answer = await asked
    assert.match(await answer.text(), /"code":"overloaded"/)
    assert.equal((await endedRow(service, account)).charged_atomic, '0')
  })
}

test('a stream of JSON that a restart breaks off costs its reasoning, and nothing that was held back', async () => {
  const node = await startNode(0)
  const account = await service.openAccount('25')
  upstream.answer = (exchange) => exchange.send(created, reasoning('one two three'), text('{"answer": "one two three'))
  const answer = await callChat(node, account, heldJson).answer
  const frames = framesOf(answer)
  for (let seen = ''; !seen.includes('three'); ) seen += (await frames.next()).value
  await upstream.exchanges.at(-1)!.read()
  await Promise.all([Array.fromAsync(frames), node.stop()])
  const { charged_atomic: charged, usage } = await endedRow(service, account)
  assert.deepEqual([usage?.completion_tokens, Number(charged)], [3, usage!.prompt_tokens + 5 * 3])
})

test('a retry that waits for an attempt interrupted by a restart gets the same error', async () => {
  const node = await startNode(0)
  const account = await service.openAccount('25')
  const headers = { 'idempotency-key': 'restart' }
  upstream.answer = (exchange) => exchange.send(created, text('one two three'))
  const { answer: first } = await begin(() => postChat(node, account.apiKey, question, { headers }))
  const arrival = nextArrival(account)
  const retry = postChat(node, account.apiKey, question, { headers })
  await (await arrival).read
  await node.stop()
  for (const answer of [await first, await retry]) assert.equal(answer.status, 503)
  assert.equal((await getRow(service, account.apiKey, await first)).charged_atomic, '0')
  upstream.answer = (exchange) => {
    exchange.send(created, text('Whole'), completed())
    exchange.end()
  }
  assert.equal((await postChat(service, account.apiKey, question, { headers })).status, 200)
})

test('an answer charged during a restart is delivered completely, even to a slow reader', async () => {
  const node = await startNode(60_000)
  const account = await service.openAccount('25')
  // More than the system takes for a client that does not read yet.
  const pieces = Array.from({ length: 25 }, () => ' penny'.repeat(80_000))
  upstream.answer = (exchange) => {
    exchange.send(created, ...pieces.map(text), completed())
    exchange.end()
  }
  const call = callChat(node, account, question)
  const answer = await call.answer
  await endedRow(service, account)
  const stopped = node.stop()
  await pause(200)
  let body = ''
  for await (const piece of answer.setEncoding('utf8')) body += piece
  assert.equal(JSON.parse(body).choices[0].message.content.length, pieces.join('').length)
  await stopped
})

/** A node that waits this long for running requests when it is stopped. */
async function startNode(drainMs: number): Promise<TestService> {
  const environment = { DRAIN_MS: String(drainMs), CHECKPOINT_MS: '60000' }
  return startTestService({ upstreamUrl: upstream.url, besideOf: service, environment })
}

/** Sends a request. Resolves with the pending response when the upstream has received it. */
async function begin(ask: () => Promise<Response>): Promise<{ readonly answer: Promise<Response> }> {
  const before = upstream.exchanges.length
  const answer = ask()
  await until(() => upstream.exchanges.length > before)
  return { answer }
}

async function errorOf(answer: Response): Promise<{ readonly code: string }> {
  return ((await answer.json()) as { readonly error: { readonly code: string } }).error
}
