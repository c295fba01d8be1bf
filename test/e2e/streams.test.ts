import assert from 'node:assert/strict'
import { once } from 'node:events'
import { Agent } from 'node:http'
import { connect } from 'node:net'
import { after, before, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { assertBooksClosed } from '../support/audit.ts'
import {
  allFrames,
  callChat,
  chunkOf,
  contentOf,
  endedRow,
  framesOf,
  nextArrival,
  readContent,
} from '../support/chat-client.ts'
import {
  answers,
  completed,
  created,
  failedEvent,
  reasoning,
  type ScriptedUpstream,
  startScriptedUpstream,
  text,
  type UpstreamExchange,
} from '../support/scripted-upstream.ts'
import { startTestService, type TestService, withoutTools } from '../support/service.ts'

// The limits of `service` are the defaults: whatever it does immediately is not caused by a timer.
let service: TestService
let impatient: TestService
let upstream: ScriptedUpstream
before(async () => {
  upstream = await startScriptedUpstream()
  // Counting would notice that the upstream writes more than was requested, and cut it. Here it is meant to write more.
  const uncounted = { CHECKPOINT_MS: '60000' }
  service = await startTestService({ upstreamUrl: upstream.url, environment: uncounted })
  impatient = await startTestService({
    upstreamUrl: upstream.url,
    environment: { ...uncounted, STREAM_KEEPALIVE_MS: '30', BLOCKED_MS_MAX: '300' },
  })
})
after(async () => {
  try {
    await assertBooksClosed(service.database, impatient.database)
  } finally {
    await service.stop()
    await impatient.stop()
    await upstream.close()
  }
})

const messages = [{ role: 'user', content: 'What is a penny?' }]
const question = { messages, stream: true, ...withoutTools }
/** As our tokenizer counts it, with the framing. */
const countedInput = 11
/** Of whole answers, before hidden reasoning of a cut one is estimated. */
const samplesNeeded = 8

test('a stream is nothing but data lines: the role once and first, then deltas, the finish, and [DONE]', async () => {
  upstream.answer = answers(created, reasoning('Hm.'), text('A coin'), text(', a small one'), completed())
  const frames = await allFrames(callChat(service, await service.openAccount('25'), question))
  // No event:, id: or retry: field, no comment while there is data, one line of data per event.
  for (const frame of frames) assert.match(frame, /^data: [^\n]+$/)
  assert.equal(frames.pop(), 'data: [DONE]')
  const chunks = frames.map((frame) => chunkOf(frame)!)
  assert.deepEqual(
    chunks.map(({ choices }) => [choices[0]!.delta, choices[0]!.finish_reason]),
    [
      [{ role: 'assistant', content: '' }, null],
      [{ reasoning_content: 'Hm.', reasoning: 'Hm.' }, null],
      [{ content: 'A coin' }, null],
      [{ content: ', a small one' }, null],
      [{}, 'stop'],
    ],
  )
  const heads = chunks.map(({ id, created, model, system_fingerprint }) => [id, created, model, system_fingerprint])
  for (const head of heads) assert.deepEqual(head, heads[0])
})

test('a stream’s headers stop proxies from buffering it, and show the hold but not the charge', async () => {
  upstream.answer = answers(created, text('Hi'), completed())
  const account = await service.openAccount('25')
  const call = callChat(service, account, question, { headers: { 'accept-encoding': 'gzip, br' } })
  const { statusCode, headers } = await call.answer
  await allFrames(call)
  const row = await endedRow(service, account)
  assert.equal(statusCode, 200)
  assert.equal(headers['content-type'], 'text/event-stream; charset=utf-8')
  assert.equal(headers['cache-control'], 'no-cache')
  assert.equal(headers['x-accel-buffering'], 'no')
  assert.equal(headers['content-encoding'], undefined)
  assert.equal(headers['access-control-allow-origin'], '*')
  assert.deepEqual([headers['x-router-request-id'], headers['x-request-id']], [row.id, row.id])
  assert.equal(headers['x-router-held-usdc'], row.held_atomic)
  assert.equal(headers['x-router-charged-usdc'], undefined)
})

test('headers and the role come as soon as the upstream accepts, and each token before the next is written', async () => {
  const accepted = Promise.withResolvers<UpstreamExchange>()
  upstream.answer = (exchange) => {
    exchange.send(created)
    accepted.resolve(exchange)
  }
  const call = callChat(service, await service.openAccount('25'), question)
  const frames = framesOf(await call.answer)
  assert.equal(chunkOf((await frames.next()).value!)?.choices[0]?.delta.role, 'assistant')
  const exchange = await accepted.promise
  for (let token = 0; token < 50; token += 1) {
    exchange.send(text(` ${token}`))
    assert.equal(contentOf((await frames.next()).value!), ` ${token}`)
  }
  exchange.send(completed())
  assert.equal((await Array.fromAsync(frames)).at(-1), 'data: [DONE]')
})

test('when the upstream accepts late, the stream begins anyway, and an error is sent in the stream', async () => {
  const asked = Promise.withResolvers<UpstreamExchange>()
  upstream.answer = asked.resolve
  const account = await impatient.openAccount('25')
  const answer = await callChat(impatient, account, question).answer
  const frames = framesOf(answer)
  assert.deepEqual([answer.statusCode, answer.headers['content-type']], [200, 'text/event-stream; charset=utf-8'])
  assert.equal(chunkOf((await frames.next()).value!)?.choices[0]?.delta.role, 'assistant')
  assert.equal((await frames.next()).value, ': keepalive')
  refuse(await asked.promise, 500)
  const rest = (await Array.fromAsync(frames)).filter((frame) => frame !== ': keepalive')
  assert.equal(rest.length, 1)
  const row = await endedRow(impatient, account)
  assert.deepEqual(chunkOf(rest[0]!)?.error?.request_id, row.id)
  assert.deepEqual([chunkOf(rest[0]!)?.error?.code, chunkOf(rest[0]!)?.choices], ['upstream_error', undefined])
  assert.deepEqual([row.status, row.charged_atomic, row.settlement.state], ['failed', '0', 'none'])
})

test('an upstream may accept the request after the stream to the client has begun', async () => {
  const asked = Promise.withResolvers<UpstreamExchange>()
  upstream.answer = asked.resolve
  const account = await impatient.openAccount('25')
  const frames = framesOf(await callChat(impatient, account, question).answer)
  const role = (await frames.next()).value!
  answers(created, text('Hi'), completed())(await asked.promise)
  const chunks = [role, ...(await Array.fromAsync(frames))].map(chunkOf).filter((chunk) => chunk !== undefined)
  assert.deepEqual(
    chunks.map(({ choices }) => choices[0]!.delta),
    [{ role: 'assistant', content: '' }, { content: 'Hi' }, {}],
  )
  assert.equal((await endedRow(impatient, account)).charged_atomic, '35')
})

test('keepalive comments are sent during silence, and are not output', async () => {
  const begun = Promise.withResolvers<UpstreamExchange>()
  upstream.answer = (exchange) => {
    exchange.send(created, text('one'))
    begun.resolve(exchange)
  }
  const account = await impatient.openAccount('25')
  const frames = framesOf(await callChat(impatient, account, question).answer)
  const exchange = await begun.promise
  await readContent(frames, 'one'.length)
  for (const word of [' two', ' three']) {
    for (let silence = 0; silence < 3; silence += 1) assert.equal((await frames.next()).value, ': keepalive')
    exchange.send(text(word))
    await readContent(frames, word.length)
  }
  exchange.send(completed(null))
  await Array.fromAsync(frames)
  assert.equal(Number((await endedRow(impatient, account)).charged_atomic), countedInput + 5 * 3)
})

// Bytes of numbered deltas that the upstream writes unless it is stopped.
const plenty = 200_000_000
const pieceLength = 4_000
const piece = (number: number) => String(number).padEnd(pieceLength, ' penny')
// The kernel buffers some megabytes; only what the service itself queues is under test.
const kernelBytesMax = 24_000_000
const queuedBytesMax = 256 * 1024

test('a client that stops reading pauses the upstream; one that continues gets everything in order, and pays for it', async () => {
  const pouring = Promise.withResolvers<Pouring>()
  const measured = Promise.withResolvers<void>()
  upstream.answer = async (exchange) => {
    const pour = { bytes: 0, pieces: 0 }
    pouring.resolve(pour)
    await pourOut(exchange, pour, piece, plenty)
    await measured.promise
    exchange.send(completed({ input_tokens: 10, output_tokens: pour.pieces, total_tokens: 10 + pour.pieces }))
  }
  const account = await service.openAccount('25')
  const arrival = nextArrival(account)
  const memoryBefore = usedMemory()
  const frames = framesOf(await callChat(service, account, { ...question, max_tokens: 60_000 }).answer)
  await frames.next()
  const pour = await pouring.promise
  assert.ok(
    (await untilStill(pour)) < kernelBytesMax,
    `the upstream wrote ${pour.bytes} bytes to a client that read none`,
  )
  assert.ok((await arrival).socket.writableLength < queuedBytesMax)

  for (let number = 0; number < plenty / pieceLength; number += 1) {
    assert.equal(await readContent(frames, pieceLength), piece(number))
  }
  // All of it has passed through, and nothing has ended yet: what the service keeps of it does not grow with it.
  assert.ok(usedMemory() - memoryBefore < plenty / 4)
  measured.resolve()
  assert.equal((await Array.fromAsync(frames)).at(-1), 'data: [DONE]')
  assert.equal(Number((await endedRow(service, account)).charged_atomic), 10 + 5 * pour.pieces)
})

test('a client that reads nothing for too long is disconnected: the upstream is stopped, and the generated output is charged', async () => {
  const pouring = Promise.withResolvers<Pouring & { exchange: UpstreamExchange }>()
  upstream.answer = async (exchange) => {
    const pour = { bytes: 0, pieces: 0, exchange }
    pouring.resolve(pour)
    await pourOut(exchange, pour, () => ' penny', plenty)
  }
  const account = await impatient.openAccount('25')
  const answer = await callChat(impatient, account, { ...question, max_tokens: 60_000 }).answer
  const pour = await pouring.promise
  await pour.exchange.hungUp
  const row = await endedRow(impatient, account)
  assert.equal(row.status, 'cancelled')
  const tokens = row.usage!.completion_tokens
  assert.ok(tokens > 0 && tokens <= pour.pieces, `${tokens} of ${pour.pieces} tokens`)
  assert.equal(Number(row.charged_atomic), countedInput + 5 * tokens)
  assert.equal(await isWhole(answer), false)
})

test('a reader that never fetches a finished answer does not keep its connection for ever', async () => {
  // More than the buffers of the connection take: the service is left with the rest of it.
  upstream.answer = answers(created, ...Array.from({ length: 10 }, () => text('x'.repeat(3_000_000))), completed())
  const account = await impatient.openAccount('25')
  const arrival = nextArrival(account)
  const call = callChat(impatient, account, { messages })
  await once((await arrival).socket, 'close')
  assert.equal((await endedRow(impatient, account)).status, 'succeeded')
  assert.equal(await isWhole(await call.answer), false)
})

test('tokens are sent immediately: the connection does not wait to fill packets', async () => {
  upstream.answer = answers(created, text('Hi'), completed())
  const account = await service.openAccount('25')
  const arrival = nextArrival(account)
  await allFrames(callChat(service, account, question))
  const socket = (await arrival).socket as unknown as Record<symbol, unknown>
  // Node tells it nowhere else.
  const noDelay = Object.getOwnPropertySymbols(socket).find(({ description }) => description === 'kSetNoDelay')!
  assert.equal(socket[noDelay], true)
})

test('one connection serves one request after another, however each of them ends', async () => {
  const account = await service.openAccount('25')
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  const endings: [body: object, ScriptedUpstream['answer'], last: RegExp][] = [
    [question, answers(created, text('Hi'), completed()), /\[DONE\]/],
    [{ messages }, answers(created, text('Hi'), completed()), /"chat\.completion"/],
    [{ messages: [] }, () => {}, /"invalid_value"/],
    [{ messages }, (exchange) => refuse(exchange, 500), /"upstream_error"/],
    [question, (exchange) => refuse(exchange, 429), /"overloaded"/],
    [question, answers(created, text('Hi'), failedEvent()), /"upstream_error"/],
    [question, answers(created, text('Hi'), completed()), /\[DONE\]/],
  ]
  const ports = new Set<number | undefined>()
  for (const [body, answer, last] of endings) {
    upstream.answer = answer
    const call = callChat(service, account, body, { agent })
    ports.add((await call.answer).socket.localPort)
    assert.match((await allFrames(call)).at(-1)!, last)
  }
  agent.destroy()
  assert.equal(ports.size, 1)
})

test('tool calls come one after another by index, each with its id and name first and once', async () => {
  const call = (index: number) => ({ type: 'function_call', id: `fc_${index}`, call_id: `call_${index}`, name: 'f' })
  const part = (output_index: number, delta: string) => ({
    type: 'response.function_call_arguments.delta',
    item_id: `fc_${output_index}`,
    output_index,
    delta,
  })
  const added = (output_index: number) => ({
    type: 'response.output_item.added',
    output_index,
    item: { ...call(output_index), arguments: '' },
  })
  const done = (output_index: number, given: string) => ({
    type: 'response.output_item.done',
    output_index,
    item: { ...call(output_index), arguments: given },
  })
  // The upstream may write them at the same time; clients join arguments by the call that was named last.
  upstream.answer = answers(
    created,
    added(0),
    part(0, '{"a"'),
    added(1),
    part(1, '{"b"'),
    part(0, ':1}'),
    part(1, ':2}'),
    done(1, '{"b":2}'),
    done(0, '{"a":1}'),
    completed(),
  )
  const frames = await allFrames(callChat(service, await service.openAccount('25'), question))
  const deltas = frames.flatMap((frame) => chunkOf(frame)?.choices[0]?.delta.tool_calls ?? [])
  for (const index of [0, 1]) {
    const [first, ...rest] = deltas.filter((delta) => delta.index === index)
    assert.deepEqual(first, {
      index,
      id: `call_${index}`,
      type: 'function',
      function: { name: 'f', arguments: '' },
    })
    for (const delta of rest) assert.deepEqual(Object.keys(delta), ['index', 'function'])
    assert.equal(rest.map((delta) => delta.function.arguments).join(''), index === 0 ? '{"a":1}' : '{"b":2}')
  }
  const order = deltas.map(({ index }) => index)
  assert.deepEqual(order, order.toSorted())
  assert.equal(chunkOf(frames.at(-2)!)?.choices[0]?.finish_reason, 'tool_calls')
})

test('usage comes in exactly one chunk, the last, and only on request, although the upstream sends it twice', async () => {
  upstream.answer = answers(created, text('Hi'), completed(), completed({ input_tokens: 99, output_tokens: 99 }))
  const account = await service.openAccount('25')
  const asked = await allFrames(callChat(service, account, { ...question, stream_options: { include_usage: true } }))
  const chunks = asked.slice(0, -1).map((frame) => chunkOf(frame)!)
  const last = chunks.pop()!
  assert.deepEqual([last.choices, last.usage?.completion_tokens], [[], 5])
  for (const chunk of chunks) assert.equal('usage' in chunk, false)
  assert.equal(asked.at(-1), 'data: [DONE]')

  const unasked = await allFrames(callChat(service, account, question))
  for (const frame of unasked) assert.doesNotMatch(frame, /"usage"/)
})

test('a client that closes its half of the connection is gone', async () => {
  const [account, earlier] = [await service.openAccount('25'), await service.openAccount('25')]
  // No other test asks with this effort. Until the service has learned that nothing is hidden here, it reads answers to their end.
  const asked = { ...question, reasoning_effort: 'low' }
  upstream.answer = answers(created, text('one two'), completed({ input_tokens: countedInput, output_tokens: 2 }))
  for (let whole = 0; whole < samplesNeeded; whole += 1) await allFrames(callChat(service, earlier, asked))
  const begun = Promise.withResolvers<UpstreamExchange>()
  upstream.answer = (exchange) => {
    exchange.send(created, text('one two'))
    begun.resolve(exchange)
  }
  const socket = connect({ host: 'localhost', port: Number(new URL(service.origin).port) })
  const body = JSON.stringify(asked)
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${account.apiKey}\r\n` +
      `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  )
  let received = ''
  for await (const chunk of socket.setEncoding('utf8')) {
    received += chunk
    if (received.includes('one two')) socket.end()
  }
  await (await begun.promise).hungUp
  const row = await endedRow(service, account)
  assert.deepEqual([row.status, Number(row.charged_atomic)], ['cancelled', countedInput + 5 * 2])
})

function refuse({ outgoing }: UpstreamExchange, status: number): void {
  outgoing.writeHead(status, { 'content-type': 'application/json' })
  outgoing.end(JSON.stringify({ error: { message: 'It broke.', type: 'server_error', code: null, param: null } }))
}

/** How much the upstream was able to write, as it goes on. */
type Pouring = { bytes: number; pieces: number }

/** Writes deltas as fast as they are taken, and no faster, until this many bytes are written or the reader is gone. */
async function pourOut(
  exchange: UpstreamExchange,
  pour: Pouring,
  piece: (number: number) => string,
  bytesMax: number,
): Promise<void> {
  const { outgoing } = exchange
  exchange.send(created)
  while (pour.bytes < bytesMax && !outgoing.destroyed) {
    const delta = piece(pour.pieces)
    exchange.send(text(delta))
    pour.pieces += 1
    pour.bytes += delta.length
    if (outgoing.writableNeedDrain) await Promise.race([once(outgoing, 'drain'), exchange.hungUp])
  }
}

/** The bytes written once no more are: while anything moves, the count does too. */
async function untilStill(pour: Pouring): Promise<number> {
  for (let still = 0, last = -1; still < 10; ) {
    await pause(20)
    still = pour.bytes === last ? still + 1 : 0
    last = pour.bytes
  }
  return pour.bytes
}

async function isWhole(answer: NodeJS.ReadableStream & { readonly complete: boolean }): Promise<boolean> {
  try {
    for await (const _ of answer);
  } catch {
    // A connection that was cut before this check.
  }
  return answer.complete
}

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

/** What is still in use, by whichever part of this process. */
function usedMemory(): number {
  collectGarbage()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}
