import assert from 'node:assert/strict'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { respond } from '../../test/support/read-answer.ts'
import {
  created,
  modelRequest as request,
  type ScriptedUpstream,
  startScriptedUpstream,
  text,
  type UpstreamExchange,
} from '../../test/support/scripted-upstream.ts'
import { until } from '../../test/support/until.ts'
import type { ChatEvent } from '../inference/chat-events.ts'
import { responses } from './responses.ts'
import { createUpstream, type Upstream } from './upstream.ts'
import type { UpstreamEnd } from './upstream-call.ts'
import { failureError, ModelOverloadedError } from './upstream-errors.ts'

// Time stands still here until a test moves it: on a busy machine the beginning of an answer can take longer than a short timeout.
const totalMs = 1_000
const longMs = 60_000
const asker = { account: 'a', isFurtherRound: false }

/** Resolves when the next piece of an answer has come. */
function nextPiece(): Promise<void> {
  return new Promise((resolve) => {
    const onPiece = () => {
      unsubscribe('undici:request:bodyChunkReceived', onPiece)
      resolve()
    }
    subscribe('undici:request:bodyChunkReceived', onPiece)
  })
}

/** An upstream whose timers stand still, in front of a server that answers like this. */
async function openUpstream(t: TestContext, answer: ScriptedUpstream['answer'], deadlineMs: number): Promise<Upstream> {
  t.mock.timers.enable({ apis: ['setTimeout'] })
  const server = await startScriptedUpstream(answer)
  const upstream = createUpstream({
    id: 'here',
    protocol: responses,
    baseUrl: server.url,
    timeouts: { connectMs: longMs, firstByteMs: longMs, idleMs: longMs, totalMs: deadlineMs },
    connectionsMax: 1,
    connectionsPerAccountMin: 1,
  })
  atEnd(t, async () => {
    await upstream.close()
    await server.close()
  })
  return upstream
}

test('a deadline that passes while the client does not read is no failure of the provider', async (t) => {
  const asked = Promise.withResolvers<UpstreamExchange>()
  const answerWith = (exchange: UpstreamExchange) => {
    exchange.send(created)
    asked.resolve(exchange)
  }
  const upstream = await openUpstream(t, answerWith, totalMs)
  const ends: UpstreamEnd['type'][] = []
  const onEnd = ({ type }: UpstreamEnd) => void ends.push(type)
  const answer = await respond(upstream, request, t.signal, { asker, onEnd })
  const seen: ChatEvent[] = []
  for await (const events of answer) {
    seen.push(...events)
    if (seen.length > 1) continue
    // The client takes no more, and the provider sends more.
    const { send } = await asked.promise
    const piece = nextPiece()
    send(text('One'))
    await piece
    t.mock.timers.tick(totalMs)
  }
  const last = seen.at(-1)
  assert.ok(last?.type === 'failed')
  assert.match(failureError(last).message, /not read in time/)
  assert.deepEqual([ends, upstream.requestsUnderWay], [['left'], 0])
})

test('an endless slow upstream ends with a timeout', async (t) => {
  const drips = (exchange: UpstreamExchange) => {
    exchange.send(created)
    const drip = setInterval(() => exchange.outgoing.write(': drip\n'), 5)
    exchange.outgoing.on('close', () => clearInterval(drip))
  }
  const upstream = await openUpstream(t, drips, totalMs)
  const answer = await respond(upstream, request, t.signal, { asker })
  const reading = Array.fromAsync(answer)
  await nextPiece()
  // The reader has taken the piece and waits for the next.
  await new Promise(setImmediate)
  t.mock.timers.tick(totalMs)
  const last = (await reading).flat().at(-1)
  assert.equal(last?.type === 'failed' && last.code, 'upstream_timeout')
})

test('an answer that is never read releases its connection after its timeout', async (t) => {
  const upstream = await openUpstream(t, (exchange) => exchange.send(created), totalMs)
  await respond(upstream, request, t.signal, { asker })
  t.mock.timers.tick(totalMs - 1)
  await assert.rejects(respond(upstream, request, t.signal, { asker }), ModelOverloadedError)
  t.mock.timers.tick(1)
  await until(() => !upstream.isFull)
  assert.ok(await respond(upstream, request, t.signal, { asker }))
})

test('an error with a slow body is still an error', async (t) => {
  let requests = 0
  const dripError = ({ outgoing }: UpstreamExchange) => {
    requests += 1
    outgoing.writeHead(500, { 'content-type': 'application/json' })
    const drip = setInterval(() => outgoing.write(' '), 10)
    outgoing.on('close', () => clearInterval(drip))
  }
  const upstream = await openUpstream(t, dripError, longMs)
  const piece = nextPiece()
  const refused = assert.rejects(respond(upstream, request, t.signal, { asker }), { code: 'upstream_error' })
  await piece
  // The timeout of the body begins when its head was read.
  await new Promise(setImmediate)
  t.mock.timers.tick(5_000)
  await refused
  assert.equal(requests, 1)
})
