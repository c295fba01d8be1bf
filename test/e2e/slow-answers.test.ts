import assert from 'node:assert/strict'
import { test } from 'node:test'
import { callChat, endedRow } from '../support/chat-client.ts'
import { completed, created, failedEvent, text, type UpstreamExchange } from '../support/scripted-upstream.ts'
import { type RequestBody, withoutTools } from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'

// A buffered answer that takes long commits its headers and keeps the connection alive with white space. What comes after
// that, a charge or an error, can no longer be told by a header or a status.

const suite = serviceSuite({ KEEPALIVE_AFTER_MS: '50', STREAM_KEEPALIVE_MS: '20' })

const messages = [{ role: 'user', content: 'What is a penny?' }]
/** As our tokenizer counts it, with the framing. */
const countedInput = 11

for (const [when, begin] of [
  ['before the upstream accepts', () => {}],
  ['after it has begun to answer', (exchange: UpstreamExchange) => exchange.send(created, text('A coin'))],
] as const) {
  test(`a slow answer, ${when}: 200 and white space, then the JSON; the charge is in the ledger, not in the headers`, async () => {
    const slow = await askSlowly(begin)
    assert.equal(slow.statusCode, 200)
    assert.equal(slow.headers['content-type'], 'application/json')
    assert.equal(slow.headers['content-length'], undefined)
    assert.equal(slow.headers['x-router-charged-usdc'], undefined)
    if (slow.exchange.outgoing.headersSent) slow.exchange.send(text(', a small one'), completed())
    else slow.exchange.send(created, text('A coin, a small one'), completed())

    const padded = await slow.body()
    assert.match(padded, /^ {4,}\{/)
    const body = JSON.parse(padded) as {
      id: string
      choices: { message: { content: string } }[]
      usage: { cost: number }
    }
    assert.equal(body.choices[0]!.message.content, 'A coin, a small one')
    const row = await endedRow(suite.service, slow.account)
    assert.deepEqual([row.status, row.charged_atomic, body.usage.cost], ['succeeded', '35', 35 / 1e6])
    assert.equal(body.id, `chatcmpl-${row.id.slice(4)}`)
    assert.equal(slow.headers['x-router-request-id'], row.id)
    assert.equal(slow.headers['x-router-held-usdc'], row.held_atomic)
  })
}

for (const [what, begin, fail, code] of [
  ['refuses', () => {}, ({ outgoing }: UpstreamExchange) => void outgoing.writeHead(500).end(), 'upstream_error'],
  ['is out of breath', () => {}, ({ outgoing }: UpstreamExchange) => void outgoing.writeHead(429).end(), 'overloaded'],
  [
    'hangs up',
    (exchange: UpstreamExchange) => exchange.send(created),
    ({ outgoing }: UpstreamExchange) => void outgoing.destroy(),
    'upstream_error',
  ],
  [
    'fails midway',
    (exchange: UpstreamExchange) => exchange.send(created, text('A coin')),
    (exchange: UpstreamExchange) => exchange.send(failedEvent()),
    'upstream_error',
  ],
] as const) {
  test(`an upstream that ${what} after that: the error is the 200’s body, and nothing is charged`, async () => {
    const slow = await askSlowly(begin)
    fail(slow.exchange)
    const { error } = JSON.parse(await slow.body()) as { error: Record<string, unknown> }
    const row = await endedRow(suite.service, slow.account)
    assert.equal(slow.statusCode, 200)
    assert.deepEqual([error.code, error.type, error.param], [code, 'server_error', null])
    assert.equal(error.request_id, slow.headers['x-router-request-id'])
    assertFree(row, 'failed')
    assert.equal(row.error?.code, code)
  })
}

test('a client that leaves while it is kept waiting, before any output: nothing, and the upstream is stopped', async () => {
  const slow = await askSlowly(() => {})
  slow.leave()
  await slow.exchange.hungUp
  assertFree(await endedRow(suite.service, slow.account), 'cancelled')
})

test('a client that leaves while it is kept waiting, midway: input and what was generated, and the upstream is stopped', async () => {
  const slow = await askSlowly((exchange) => exchange.send(created, text('one two three')))
  slow.leave()
  await slow.exchange.hungUp
  const row = await endedRow(suite.service, slow.account)
  assert.deepEqual([row.status, Number(row.charged_atomic)], ['cancelled', countedInput + 5 * 3])
  assert.equal(row.usage?.source, 'counted')
})

/** A request that is kept waiting: some white space has come, and the upstream goes on as the test wants. */
async function askSlowly(begin: (exchange: UpstreamExchange) => void) {
  const asked = Promise.withResolvers<UpstreamExchange>()
  suite.upstream.answer = (exchange) => {
    begin(exchange)
    asked.resolve(exchange)
  }
  const account = await suite.service.openAccount('25')
  const call = callChat(suite.service, account, { messages, ...withoutTools })
  const answer = await call.answer
  const pieces = answer.setEncoding('utf8')[Symbol.asyncIterator]()
  let white = ''
  while (white.length < 4) white += (await pieces.next()).value
  assert.match(white, /^ +$/)
  return {
    account,
    exchange: await asked.promise,
    statusCode: answer.statusCode,
    headers: answer.headers,
    leave: call.leave,
    /** The whole body, once it has come. */
    async body(): Promise<string> {
      return white + (await Array.fromAsync(pieces)).join('')
    },
  }
}

function assertFree(row: RequestBody, status: string): void {
  assert.deepEqual([row.status, row.charged_atomic, row.usage], [status, '0', null])
}
