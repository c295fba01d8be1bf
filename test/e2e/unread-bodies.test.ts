import assert from 'node:assert/strict'
import { once } from 'node:events'
import { Agent, type IncomingMessage, request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { type TestContext, test } from 'node:test'
import { openSession } from '../../src/identity/sessions.ts'
import { format, fromAtomic } from '../../src/money/usdc.ts'
import { atEnd } from '../support/at-end.ts'
import { DashboardClient } from '../support/dashboard-client.ts'
import { entryOf } from '../support/people.ts'
import { answers, completed, created, text } from '../support/scripted-upstream.ts'
import { getRow, postChat, type TestAccount } from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'
import { until } from '../support/until.ts'

// Requests that are refused before their body is read, and what comes after them.

const suite = serviceSuite({ IN_FLIGHT_CAP_USDC: '10' })
const hi = { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 16 }
/** Above 64 KiB, and not JSON: a service that reads it says so. */
const longAndWrong = `{"${'x'.repeat(200_000)}`

async function refused(answer: Response) {
  const { error } = (await answer.json()) as { error: Record<string, string> }
  return { status: answer.status, code: error.code, error }
}

/** An account that had a refusal just now. */
async function openSuspect(balance: string): Promise<TestAccount> {
  const account = await suite.service.openAccount(balance)
  const answer = await postChat(suite.service, account.apiKey, { ...hi, model: 'none' })
  assert.equal(answer.status, 404)
  return account
}

test('an account without money gets its 402 before a large body is read, once it had a refusal', async () => {
  const { service } = suite
  const fresh = await service.openAccount('0')
  const first = await refused(await postChat(service, fresh.apiKey, longAndWrong))
  assert.deepEqual([first.status, first.code], [400, 'invalid_json'], 'in the specified order at first')
  const answer = await postChat(service, fresh.apiKey, longAndWrong)
  const { status, code, error } = await refused(answer.clone())
  assert.deepEqual([status, code], [402, 'insufficient_balance'])
  assert.equal(
    error.message,
    'Every request costs at least 0.000001 USDC; 0 USDC is available. Deposit USDC and try again.',
  )
  assert.deepEqual([error.required_atomic, error.available_atomic, error.held_atomic], ['1', '0', '0'])
  const row = await until(async () => {
    const found = await getRow(service, fresh.apiKey, answer)
    return found.status === undefined ? undefined : found
  })
  assert.deepEqual([row.status, row.charged_atomic], ['refused', '0'])
  const quote = await fetch(`${service.baseUrl}/quote`, {
    method: 'POST',
    headers: { authorization: `Bearer ${fresh.apiKey}`, 'content-type': 'application/json' },
    body: longAndWrong,
  })
  assert.equal((await refused(quote)).code, 'insufficient_balance', 'quotes too')
  assert.equal((await refused(await postChat(service, fresh.apiKey, '{'))).code, 'invalid_json', 'short ones are read')
})

test('a deposit counts immediately, also right after a refusal', async () => {
  const { service, upstream } = suite
  const account = await openSuspect('0')
  upstream.answer = answers(created, text('Hi'), completed())
  const long = { ...hi, messages: [{ role: 'user', content: 'A penny saved. '.repeat(6_000) }] }
  for (let time = 0; time < 3; time += 1) {
    assert.equal((await postChat(service, account.apiKey, long)).status, 402)
    assert.equal((await postChat(service, account.apiKey, hi)).status, 402)
  }
  await service.credit(account.id, '5')
  assert.equal((await postChat(service, account.apiKey, long)).status, 200)
  assert.equal((await postChat(service, account.apiKey, hi)).status, 200)
})

/** Sends a request that holds all that the account has, until the upstream goes on. */
async function holdEverything(account: TestAccount, go: Promise<void>): Promise<{ answer: Promise<Response> }> {
  const { service, upstream } = suite
  const quote = async (maxTokens: number) => {
    const answer = await fetch(`${service.baseUrl}/quote`, {
      method: 'POST',
      headers: { authorization: `Bearer ${account.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ ...hi, max_tokens: maxTokens }),
    })
    const { quote_atomic, available_atomic } = (await answer.json()) as Record<string, string>
    return { amount: BigInt(quote_atomic!), available: BigInt(available_atomic!) }
  }
  const { amount, available } = await quote(16)
  const perToken = (await quote(17)).amount - amount
  const tokens = (available - amount) / perToken + 1n
  await service.credit(account.id, format(fromAtomic(amount + tokens * perToken - available)))
  upstream.answer = async (exchange) => {
    await go
    exchange.send(created, text('Hi'), completed())
    exchange.end()
  }
  const before = upstream.exchanges.length
  const answer = postChat(service, account.apiKey, { ...hi, max_tokens: 16 + Number(tokens) })
  await until(() => upstream.exchanges.length > before)
  return { answer }
}

test('when nothing is left to spend, a retry of an answered request still gets its answer, however large it is', async () => {
  const { service, upstream } = suite
  const long = { ...hi, messages: [{ role: 'user', content: 'A penny saved. '.repeat(6_000) }] }
  const account = await service.openAccount('0.2')
  upstream.answer = answers(created, text('Paid'), completed())
  const headers = { 'idempotency-key': 'once' }
  assert.equal((await postChat(service, account.apiKey, long, { headers })).status, 200)
  const go = Promise.withResolvers<void>()
  const { answer } = await holdEverything(account, go.promise)
  assert.equal((await postChat(service, account.apiKey, hi)).status, 402)
  const { status, error } = await refused(await postChat(service, account.apiKey, longAndWrong))
  assert.equal(status, 402)
  assert.match(error.message!, /Open requests hold 0\.\d+ USDC: wait until they end or deposit USDC/)
  const again = await postChat(service, account.apiKey, long, { headers })
  assert.deepEqual([again.status, again.headers.get('idempotent-replayed')], [200, 'true'])
  go.resolve()
  assert.equal((await answer).status, 200)
})

test('a customer with money is served with the largest body, whatever was refused before', async () => {
  const { service, upstream } = suite
  const account = await openSuspect('9')
  upstream.answer = answers(created, text('Hi'), completed())
  const metadata = { note: 'x'.repeat(3_500_000) }
  const messages = [{ role: 'user', content: 'A penny saved is a penny earned. '.repeat(10_000) }]
  assert.equal((await postChat(service, account.apiKey, { ...hi, messages, metadata })).status, 200)
})

/** Sends the request head and the first bytes of the body only. */
function beginUpload(t: TestContext, account: TestAccount, bytes: number) {
  const upload = request(`${suite.service.baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${account.apiKey}`, 'content-type': 'application/json', 'content-length': bytes },
  })
  upload.on('error', () => {})
  atEnd(t, () => upload.destroy())
  upload.write('{')
  return upload
}

test('beside a hundred uploads of an account without money that never end, a customer is served', async (t) => {
  const { service, upstream } = suite
  const honest = await service.openAccount('1')
  const hostile = await openSuspect('0')
  upstream.answer = answers(created, text('Hi'), completed())
  const uploads = Array.from({ length: 100 }, () => beginUpload(t, hostile, 2_000_000))
  const told = uploads.map(async (upload) => ((await once(upload, 'response')) as [IncomingMessage])[0].statusCode)
  for (let time = 0; time < 5; time += 1) assert.equal((await postChat(service, honest.apiKey, hi)).status, 200)
  // The service does not wait for the rest of their bodies.
  assert.deepEqual([...new Set(await Promise.all(told))], [402])
  assert.equal((await postChat(service, honest.apiKey, hi)).status, 200)
})

test('the connection of a short body that was not read serves the next request', async (t) => {
  const { service, upstream } = suite
  const account = await service.openAccount('1')
  upstream.answer = answers(created, text('Hi'), completed())
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  atEnd(t, () => agent.destroy())
  const send = async (path: string, type: string, body: string) => {
    const outgoing = request(`${service.origin}${path}`, {
      method: 'POST',
      agent,
      headers: { authorization: `Bearer ${account.apiKey}`, 'content-type': type },
    })
    outgoing.end(body)
    const [answer] = (await once(outgoing, 'response')) as [IncomingMessage]
    answer.resume()
    await once(answer, 'end')
    return { status: answer.statusCode, isReused: outgoing.reusedSocket }
  }
  // A wrong media type is refused by the head alone, and so is an unknown address.
  assert.equal((await send('/v1/chat/completions', 'text/plain', 'x'.repeat(60_000))).status, 415)
  const chat = () => send('/v1/chat/completions', 'application/json', JSON.stringify(hi))
  assert.deepEqual(await chat(), { status: 200, isReused: true })
  assert.deepEqual(await send('/v1/responses', 'application/json', 'x'.repeat(3_000_000)), {
    status: 404,
    isReused: true,
  })
  assert.deepEqual(await chat(), { status: 200, isReused: true })
})

/** Everything that arrives on a connection until it is closed. */
async function readAll(socket: Socket): Promise<string> {
  let received = ''
  socket.setEncoding('utf8').on('data', (piece: string) => {
    received += piece
  })
  socket.on('error', () => {})
  if (!socket.closed) await once(socket, 'close')
  return received
}

function head(path: string, account: TestAccount, length: number, more = ''): string {
  return (
    `POST ${path} HTTP/1.1\r\nhost: penny\r\nauthorization: Bearer ${account.apiKey}\r\n` +
    `content-type: application/json\r\ncontent-length: ${length}\r\n${more}\r\n`
  )
}

test('a request pipelined behind an unread body is answered after it, or not at all, and nothing in the body is taken for a request', async () => {
  const { service, upstream } = suite
  const account = await openSuspect('0')
  const rich = await service.openAccount('1')
  upstream.answer = answers(created, text('Hi'), completed())
  const { port } = new URL(service.origin)
  const body = JSON.stringify(hi)
  const chat = (more = '') => head('/v1/chat/completions', rich, Buffer.byteLength(body), more) + body
  const before = upstream.exchanges.length
  // The body that is not read looks like a request that another account pays for.
  const smuggled = chat().padEnd(3_000_000, ' ')

  const refusedFirst = connect(Number(port), '127.0.0.1')
  refusedFirst.write(head('/v1/chat/completions', account, smuggled.length) + smuggled + chat())
  const closed = await readAll(refusedFirst)
  assert.match(closed, /^HTTP\/1\.1 402 .*\r\n/)
  assert.match(closed, /connection: close/i)
  assert.equal(closed.match(/HTTP\/1\.1 /g)?.length, 1)
  assert.equal(upstream.exchanges.length, before)

  const unknownFirst = connect(Number(port), '127.0.0.1')
  unknownFirst.write(head('/v1/responses', account, smuggled.length) + smuggled + chat('connection: close\r\n'))
  const kept = await readAll(unknownFirst)
  assert.deepEqual(kept.match(/HTTP\/1\.1 \d+/g), ['HTTP/1.1 404', 'HTTP/1.1 200'])
  assert.equal(upstream.exchanges.length, before + 1)
})

test('the playground asks for the balance before it reads the body', async () => {
  const { service } = suite
  const account = await service.openAccount('0')
  const client = new DashboardClient(service)
  const { token } = await openSession(
    service.database,
    await entryOf(service.database, { ...account, accountId: account.id }),
    'wallet',
    'test',
  )
  client.cookie = `penny_session=${token}`
  const send = async (body: object) => refused(await client.send('POST', '/api/playground', body))
  // No key of the account: reading the body reports it.
  const long = { key_id: crypto.randomUUID(), note: 'x'.repeat(200_000) }
  assert.deepEqual((await send(long)).status, 404)
  const second = await send(long)
  assert.deepEqual([second.status, second.code], [402, 'insufficient_balance'])
  assert.equal((await send({ ...long, note: '' })).status, 404)
})
