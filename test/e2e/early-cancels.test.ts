import assert from 'node:assert/strict'
import { test } from 'node:test'
import { callChat, endedRows, framesOf } from '../support/chat-client.ts'
import { created, failedEvent, type UpstreamExchange } from '../support/scripted-upstream.ts'
import { type RequestBody, type TestAccount, withoutTools } from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'

// A cancel before output is free, but not without end: twenty an hour, and 0.10 USDC an hour. "What is a penny?" is 11 tokens of input
// with its framing, at 1 atomic unit each.

const suite = serviceSuite()
const messages = [{ role: 'user', content: 'What is a penny?' }]
const inputPrice = 11

/** Leaves when the upstream has accepted and has written nothing. */
async function cancelEarly(account: TestAccount, body: object = {}): Promise<void> {
  suite.upstream.answer = (exchange) => exchange.send(created)
  const call = callChat(suite.service, account, { messages, stream: true, ...withoutTools, ...body })
  await framesOf(await call.answer).next()
  const { hungUp } = suite.upstream.exchanges.at(-1)!
  call.leave()
  await hungUp
}

function charges(rows: readonly RequestBody[]): [number, string | undefined][] {
  return rows.map(({ charged_atomic, error }) => [Number(charged_atomic), error?.code])
}

test('after twenty free cancels in an hour a cancel before output is charged its input, and the row says why', async () => {
  const account = await suite.service.openAccount('25')
  for (let cancel = 0; cancel < 22; cancel += 1) await cancelEarly(account)
  const rows = await endedRows(suite.service, account, 22)
  for (const { status } of rows) assert.equal(status, 'cancelled')
  assert.deepEqual(charges(rows.slice(0, 20)), Array(20).fill([0, undefined]))
  assert.deepEqual(charges(rows.slice(20)), Array(2).fill([inputPrice, 'cancel_allowance_spent']))
  assert.deepEqual(
    rows.slice(20).map(({ usage }) => [usage?.prompt_tokens, usage?.completion_tokens, usage?.source]),
    Array(2).fill([inputPrice, 0, 'counted']),
  )
  const other = await suite.service.openAccount('25')
  await cancelEarly(other)
  assert.deepEqual(charges(await endedRows(suite.service, other, 1)), [[0, undefined]])
})

test('long prompts use the allowance up by their price: the one after 0.10 USDC is charged', async () => {
  const account = await suite.service.openAccount('25')
  const long = { messages: [{ role: 'user', content: ' penny'.repeat(12_000) }], model: 'gpt-6-astra', max_tokens: 100 }
  for (let cancel = 0; cancel < 3; cancel += 1) await cancelEarly(account, long)
  const rows = await endedRows(suite.service, account, 3)
  // 12,000 tokens and 6 of framing at 5.00 a million are 60,030: two of them pass 100,000.
  assert.deepEqual(charges(rows), [
    [0, undefined],
    [0, undefined],
    [60_030, 'cancel_allowance_spent'],
  ])
})

test('requests that the upstream never accepted, and failures, neither use the allowance nor are charged after it', async () => {
  const account = await suite.service.openAccount('25')
  for (let cancel = 0; cancel < 20; cancel += 1) await cancelEarly(account)
  const asked = Promise.withResolvers<UpstreamExchange>()
  suite.upstream.answer = asked.resolve
  const call = callChat(suite.service, account, { messages, stream: true, ...withoutTools })
  const { hungUp } = await asked.promise
  call.leave()
  await hungUp
  suite.upstream.answer = (exchange) => {
    exchange.send(created, failedEvent())
    exchange.end()
  }
  const failed = callChat(suite.service, account, { messages, stream: true, ...withoutTools })
  for await (const _ of framesOf(await failed.answer)) {
    // To its end.
  }
  const rows = await endedRows(suite.service, account, 22)
  assert.deepEqual(
    rows.slice(20).map(({ status, charged_atomic }) => [status, charged_atomic]),
    [
      ['cancelled', '0'],
      ['failed', '0'],
    ],
  )
})
