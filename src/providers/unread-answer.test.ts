import assert from 'node:assert/strict'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { created, startScriptedUpstream, text, type UpstreamExchange } from '../../test/support/scripted-upstream.ts'
import type { ChatEvent } from '../inference/chat-events.ts'
import type { ModelRequest } from './model-request.ts'
import { responses } from './responses.ts'
import { createUpstream, type UpstreamEnd } from './upstream.ts'
import { failureError } from './upstream-errors.ts'

const totalMs = 1_000

const request: ModelRequest = {
  instructions: '',
  messages: [{ role: 'user', content: 'Hi' }],
  turns: [],
  tools: [],
  toolChoice: 'auto',
  parallelToolCalls: undefined,
  responseFormat: { type: 'text' },
  reasoningEffort: 'low',
  temperature: undefined,
  maxOutputTokens: 100,
  promptCacheKey: 'key',
}

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

test('a deadline that passes while the client does not read is no failure of the provider', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] })
  const asked = Promise.withResolvers<UpstreamExchange>()
  const server = await startScriptedUpstream((exchange) => {
    exchange.send(created)
    asked.resolve(exchange)
  })
  const upstream = createUpstream({
    id: 'here',
    protocol: responses,
    baseUrl: server.url,
    timeouts: { connectMs: totalMs, firstByteMs: totalMs, idleMs: totalMs, totalMs },
    connectionsMax: 1,
    connectionsPerAccountMin: 1,
  })
  atEnd(t, async () => {
    await upstream.close()
    await server.close()
  })
  const ends: UpstreamEnd['type'][] = []
  const answer = await upstream.respond(request, 'm', t.signal, {
    asker: { account: 'a', isFurtherRound: false },
    onEnd: ({ type }) => void ends.push(type),
  })
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
