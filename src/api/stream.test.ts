import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { test } from 'node:test'
import { DashboardClient, type Json, signInNew } from '../../test/support/dashboard-client.ts'
import { completed, created, text } from '../../test/support/scripted-upstream.ts'
import { postChat, startTestService } from '../../test/support/service.ts'
import { serviceSuite } from '../../test/support/suites.ts'
import { until } from '../../test/support/until.ts'
import { createRequestId } from '../ledger/request-id.ts'
import { chatContracts } from '../openapi/contracts/chat.ts'

const question = [{ role: 'user', content: 'What is a penny?' }]
let client: DashboardClient & { accountId: string }
let secret: string

const suite = serviceSuite({ STREAM_KEEPALIVE_MS: '100' }, async (service) => {
  client = await signInNew(service, '10')
  secret = (await client.post('/api/keys', { name: 'first' })).secret
  suite.upstream.answer = (exchange) => {
    exchange.send(created, text('A coin.'), completed({ input_tokens: 11, output_tokens: 7, total_tokens: 18 }))
    exchange.end()
  }
})

async function send(apiKey: string, body: object): Promise<void> {
  await (await postChat(suite.service, apiKey, body)).arrayBuffer()
}

test('the live stream reports the balance, started and ended requests, and refusals', async () => {
  const stream = await client.send('GET', '/api/stream')
  const events = readEvents(stream)
  await events.next('ready')
  await send(secret, { messages: question })
  // On a slow machine, the view reads its start before its end.
  let ended = await events.next('request')
  if (ended.change === 'started') ended = await events.next('request')
  assert.equal(ended.change, 'ended')
  assert.equal(ended.request.status, 'succeeded')
  await send(secret, { messages: question, n: 2 })
  const refused = await events.next('request')
  assert.deepEqual([refused.change, refused.request.error.code], ['refused', 'invalid_value'])
  await suite.service.credit(client.accountId, '1')
  const { deposit } = await events.next('deposit')
  assert.deepEqual([deposit.amount, deposit.state], ['1', 'credited'])
  await stream.body?.cancel().catch(() => {})
})

// The date was made from a clock that counts from the start of the process: a newcomer's first error was of 1970.
test('the live stream dates a call with a wrong key by the time of day', async () => {
  // Not as a client behind a proxy: those share an address and get no notice.
  const stream = await fetch(`${suite.service.origin}/api/stream`, { headers: { cookie: client.cookie! } })
  const events = readEvents(stream)
  await events.next('ready')
  const before = Date.now()
  await send('penny_wrong', { messages: question })
  const { at } = await events.next('unidentified')
  assert.ok(Date.parse(at) >= before && Date.parse(at) <= Date.now(), at)
  await stream.body?.cancel().catch(() => {})
})

// Browsers leave pages all the time, and some before their stream has begun. Each of those used to keep everybody else's from
// being told of anything.
test('a page that is closed immediately does not affect other live views', async () => {
  const [hasty, patient] = [await signInNew(suite.service), await signInNew(suite.service)]
  for (let turn = 0; turn < 10; turn += 1) await (await hasty.send('GET', '/api/stream')).body?.cancel()
  await suite.service.credit(hasty.accountId, '2')
  for (const one of [hasty, patient]) {
    const stream = await one.send('GET', '/api/stream')
    const events = readEvents(stream)
    await events.next('ready')
    await suite.service.credit(one.accountId, '1')
    assert.equal((await events.next('deposit')).deposit.amount, '1')
    await stream.body?.cancel().catch(() => {})
  }
})

test('a page on one node sees requests of another, misses none when it reconnects, and ends when its session does', async () => {
  const beside = await startTestService({ besideOf: suite.service, environment: { STREAM_KEEPALIVE_MS: '100' } })
  try {
    const other = await signInNew(suite.service, '1')
    const { secret: others } = await other.post('/api/keys', { name: 'live' })
    const page = new DashboardClient(beside)
    page.cookie = other.cookie
    const stream = await page.send('GET', '/api/stream')
    const events = readEvents(stream)
    assert.equal((await events.next('ready')).resumed, false)
    await send(others, { messages: question })
    while ((await events.next('request')).change !== 'ended');
    const lastId = events.lastId()!
    await stream.body?.cancel().catch(() => {})
    await send(others, { messages: question, n: 2 })
    // Refusals are recorded after their answer.
    await until(async () => (await other.get('/api/requests')).data.length === 2)
    const again = await page.send('GET', '/api/stream', undefined, { 'last-event-id': lastId })
    const missed = readEvents(again)
    // The node may still have the page's first stream: what that one was not told either comes after `ready`.
    const told = [await missed.next('ready', 'request'), await missed.next('ready', 'request')]
    assert.deepEqual(told.map((event) => event.resumed ?? event.request.error.code).sort(), ['invalid_value', true])
    const foreign = await client.send('GET', '/api/stream', undefined, { 'last-event-id': lastId })
    assert.equal((await readEvents(foreign).next('ready')).resumed, false)
    await foreign.body?.cancel().catch(() => {})
    // Signed out on the first node: the page on the second ends.
    await other.post('/api/auth/logout')
    await missed.ended()
  } finally {
    await beside.stop()
  }
})

test('a stream ends with its session', async () => {
  const other = await signInNew(suite.service)
  const stream = await other.send('GET', '/api/stream')
  assert.equal(stream.headers.get('content-type'), 'text/event-stream; charset=utf-8')
  await other.post('/api/auth/logout')
  assert.deepEqual(await other.refusal('GET', '/api/stream'), [401, 'session_required'])
  // It ends by itself; were it not to, this would wait for ever.
  await stream.text()
})

test('the twenty-first live view of an account is refused, a place is free again when a view is closed or was only a HEAD', async () => {
  const other = await signInNew(suite.service)
  // After a HEAD request the body of the view is neither read nor cancelled.
  for (let turn = 0; turn < 30; turn += 1) await other.send('HEAD', '/api/stream')
  const streams: Response[] = []
  await until(async () => {
    const stream = await other.send('GET', '/api/stream')
    if (stream.status === 200) streams.push(stream)
    return streams.length === 20
  })
  assert.deepEqual(await other.refusal('GET', '/api/stream'), [429, 'rate_limited'])
  // A refused view must leave nothing behind that breaks at the next keepalive.
  const events = readEvents(streams.at(-1)!)
  await events.next('ready')
  await events.comment()
  await events.comment()
  await streams[0]!.body?.cancel()
  await until(async () => {
    const stream = await other.send('GET', '/api/stream')
    await stream.body?.cancel()
    return stream.status === 200
  })
  for (const stream of streams.slice(1, -1)) await stream.body?.cancel()
})

// Its place was given away, and a quarter of a megabyte stayed in memory for as long as the client liked.
test('a client that reads nothing of its stream is disconnected', { timeout: 120_000 }, async () => {
  const { database, origin } = suite.service
  const other = await signInNew(suite.service)
  const { id: keyId } = await other.post('/api/keys', { name: 'x'.repeat(200) })
  const socket = connect(Number(new URL(origin).port), '127.0.0.1')
  socket.pause()
  let isClosed = false
  socket.once('close', () => {
    isClosed = true
  })
  socket.on('error', () => {})
  socket.write(`GET /api/stream HTTP/1.1\r\nhost: penny\r\ncookie: ${other.cookie}\r\n\r\n`)
  await until(async () => {
    const ids = Array.from({ length: 100 }, () => createRequestId(0, Date.now()))
    await database.query('update api_keys set refusals = 0 where id = $1', [keyId])
    await database.query(
      `select record_refusals(0::smallint, $1, array[$2::uuid], array(
         select row(r.id, $2, $3, null, false, null, 'invalid_value')::refusal_call from unnest($4::uuid[]) as r (id)))`,
      [ids[0], other.accountId, keyId, ids],
    )
    // A client that does not read notices the end of its connection when it writes.
    socket.write('\r\n')
    return isClosed
  })
})

/** Server-sent events, one by one; others than the one asked for are passed over. */
function readEvents(response: Response): {
  next(...types: readonly string[]): Promise<Json>
  /** The id that a browser would reconnect with. */
  lastId(): string | undefined
  /** Resolves with the next keepalive. */
  comment(): Promise<void>
  ended(): Promise<void>
} {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  let id: string | undefined
  return {
    lastId: () => id,
    async ended() {
      while (!(await reader.read()).done);
    },
    async comment() {
      while (!text.includes(': \n\n')) text += (await reader.read()).value ?? ''
      text = text.replace(': \n\n', '')
    },
    async next(...types) {
      for (;;) {
        const end = text.indexOf('\n\n')
        if (end === -1) {
          const { value, done } = await reader.read()
          assert.ok(!done, 'the stream has ended')
          text += value
          continue
        }
        id = /^id: (.*)$/m.exec(text.slice(0, end))?.[1] ?? id
        const data = /^data: (.*)$/m.exec(text.slice(0, end))?.[1]
        text = text.slice(end + 2)
        const event = data === undefined ? undefined : chatContracts.openStream.answer.parse(JSON.parse(data))
        if (event !== undefined && types.includes(event.type)) return event
      }
    },
  }
}
