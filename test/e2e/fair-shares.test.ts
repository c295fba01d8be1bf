import assert from 'node:assert/strict'
import { type ClientRequest, request } from 'node:http'
import { type TestContext, test } from 'node:test'
import { createKey } from '../../src/identity/api-keys.ts'
import { atEnd } from '../support/at-end.ts'
import { answers, completed, created, text } from '../support/scripted-upstream.ts'
import { postChat, type TestService } from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'
import { until } from '../support/until.ts'

// One customer against all: what a single account cannot take from the others.

const suite = serviceSuite({ REQUESTS_MAX: '60', IN_FLIGHT_CAP_USDC: '10' })
const hi = { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 16 }

async function post(path: string, apiKey: string, body: object) {
  const answer = await fetch(`${suite.service.baseUrl}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  const { error } = (await answer.json()) as { error?: { code: string; message: string; required_atomic?: string } }
  return { status: answer.status, code: error?.code, error, retryAfter: answer.headers.get('retry-after') }
}

/** Sends the beginning of a body and no more. */
function sendSlowly(t: TestContext, service: TestService, apiKey: string): ClientRequest {
  const upload = request(`${service.baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json', 'content-length': 1_000 },
  })
  upload.on('error', () => {})
  atEnd(t, () => upload.destroy())
  upload.write('{')
  return upload
}

test('requests whose bodies never arrive take no place from others', async (t) => {
  const { service, upstream } = suite
  const greedy = await service.openAccount('0')
  const honest = await service.openAccount('1')
  upstream.answer = answers(created, text('Hi'), completed())
  const uploads = Array.from({ length: 100 }, () => sendSlowly(t, service, greedy.apiKey))
  await Promise.all(uploads.map((upload) => until(() => upload.socket?.bytesWritten)))
  // A later request on a connection of its own is read after them.
  assert.equal((await post('/quote', greedy.apiKey, hi)).status, 200)
  for (let time = 0; time < 20; time += 1) assert.equal((await postChat(service, honest.apiKey, hi)).status, 200)
})

test('an account at its share of the requests in progress is refused, and others are served', async () => {
  const { service, upstream } = suite
  const greedy = await service.openAccount('5')
  const honest = await service.openAccount('1')
  const go = Promise.withResolvers<void>()
  const before = upstream.exchanges.length
  upstream.answer = async (exchange) => {
    await go.promise
    exchange.send(created, text('Hi'), completed())
    exchange.end()
  }
  const served = Array.from({ length: 16 }, () => postChat(service, greedy.apiKey, hi))
  await until(() => upstream.exchanges.length === before + 16)
  const refused = await post('/chat/completions', greedy.apiKey, hi)
  assert.deepEqual([refused.status, refused.code, refused.retryAfter], [429, 'rate_limited', '1'])
  assert.match(refused.error!.message, /share of the service: 16 of 60 requests in progress/)
  const other = postChat(service, honest.apiKey, hi)
  await until(() => upstream.exchanges.length === before + 17)
  go.resolve()
  for (const answer of await Promise.all([other, ...served])) assert.equal(answer.status, 200)
  assert.equal((await postChat(service, greedy.apiKey, hi)).status, 200)
})

test('long input of an account that cannot pay for it is refused before it is counted', async () => {
  const { service } = suite
  const poor = await service.openAccount('0')
  const rich = await service.openAccount('5')
  // Half a million tokens: who is counted for is told that the model cannot read them.
  const long = { ...hi, messages: [{ role: 'user', content: 'a b c d e '.repeat(100_000) }] }
  const short = { ...hi, messages: [{ role: 'user', content: 'a b c d e '.repeat(100) }] }
  for (const path of ['/chat/completions', '/quote']) {
    const refused = await post(path, poor.apiKey, long)
    assert.deepEqual([refused.status, refused.code], [402, 'insufficient_balance'], path)
    assert.ok(BigInt(refused.error!.required_atomic!) > 0n)
    const unreadable = await post(path, rich.apiKey, long)
    assert.deepEqual([unreadable.status, unreadable.code], [400, 'context_length_exceeded'], path)
  }
  assert.equal((await post('/chat/completions', poor.apiKey, short)).code, 'insufficient_balance')
  assert.equal((await post('/quote', poor.apiKey, short)).status, 200)
})

test('the order of checks is the same for long input: a used-up key limit is reported first', async () => {
  const { service } = suite
  const { apiKey } = await service.openAccount('0', { limit: 0n as never })
  const long = { ...hi, messages: [{ role: 'user', content: 'a b c d e '.repeat(1_000) }] }
  assert.equal((await post('/chat/completions', apiKey, long)).code, 'key_limit_exceeded')
})

test('input of more than ten bytes per token of the context is refused without counting', async () => {
  const { service } = suite
  const { apiKey } = await service.openAccount('0')
  // Spaces are up to 128 to a token: counted, these would fit.
  const spaces = { ...hi, messages: [{ role: 'user', content: ' '.repeat(4_050_000) }] }
  const refused = await post('/chat/completions', apiKey, spaces)
  assert.deepEqual([refused.status, refused.code], [400, 'context_length_exceeded'])
})

test('whatever an account without money sends, another account is served and the ledger balances', async (t) => {
  const { service, upstream } = suite
  const hostile = await service.openAccount('0')
  const honest = await service.openAccount('5')
  upstream.answer = answers(created, text('Hi'), completed())
  const words = Array.from({ length: 60_000 }, () => Math.random().toString(36).slice(2, 10)).join(' ')
  const long = { ...hi, messages: [{ role: 'user', content: words }] }
  const leave = new AbortController()
  const { signal } = leave
  const attacks = [
    () => postChat(service, hostile.apiKey, long, { signal }),
    () => postChat(service, hostile.apiKey, { ...hi, model: 'none' }),
    () => postChat(service, hostile.apiKey, hi, { headers: { 'x-stainless-retry-count': '1' } }),
    () => post('/quote', hostile.apiKey, long),
    () => fetch(`${service.origin}/api/requests/totals`, { headers: { authorization: `Bearer ${hostile.apiKey}` } }),
  ]
  for (let time = 0; time < 10; time += 1) sendSlowly(t, service, hostile.apiKey)
  const struck = Promise.allSettled(Array.from({ length: 50 }, (_, time) => attacks[time % attacks.length]!()))
  const article = { ...hi, messages: [{ role: 'user', content: 'A penny saved is a penny earned. '.repeat(250) }] }
  for (const body of [hi, article, hi, article]) {
    assert.equal((await postChat(service, honest.apiKey, body)).status, 200)
  }
  leave.abort()
  // A retry may get a retryable 503, because the attempt that it waited for was refused.
  const statuses = (await struck).flatMap((outcome) => (outcome.status === 'fulfilled' ? outcome.value.status : []))
  assert.deepEqual(
    statuses.filter((status) => status >= 500 && status !== 503),
    [],
  )
})

test('prompts that a provider flags are passed on sixty times, then once a second, whatever the key; others are served', async () => {
  const { service, upstream } = suite
  const { id: accountId, partition, ...account } = await service.openAccount('1')
  const stranger = await service.openAccount('1')
  const { secret: otherKey } = await createKey(service.database, { partition, accountId, name: 'other' })
  upstream.answer = ({ outgoing }) => {
    outgoing.writeHead(400, { 'content-type': 'application/json' })
    outgoing.end('{"error":{"code":"invalid_prompt","message":"against our policy"}}')
  }
  const [before, beganMs] = [upstream.exchanges.length, performance.now()]
  let left = 300
  const strike = async (apiKey: string) => {
    for (; left > 0; left -= 1) {
      const { status, code, error } = await post('/chat/completions', apiKey, hi)
      if (status === 400) continue
      assert.deepEqual([status, code], [429, 'rate_limited'])
      return assert.match(error!.message, /More than 60 prompts of this account, and then 1 per second, violated/)
    }
  }
  const connections = 8
  await Promise.all(Array.from({ length: connections }, (_, index) => strike(index % 2 ? account.apiKey : otherKey)))
  const passedMax = 60 + connections + (performance.now() - beganMs) / 1_000 + 1
  const passed = upstream.exchanges.length - before
  assert.ok(passed <= passedMax, `${passed} of at most ${passedMax}`)
  upstream.answer = answers(created, text('Hi'), completed())
  assert.equal((await postChat(service, stranger.apiKey, hi)).status, 200)
})

test('a key whose requests are all refused is slowed down, unread, and neither another key of its account nor another account is', async () => {
  const { service, upstream } = suite
  const account = await service.openAccount('1')
  const stranger = await service.openAccount('1')
  const { secret: otherKey } = await createKey(service.database, {
    partition: 0,
    accountId: account.id,
    name: 'other',
  })
  upstream.answer = answers(created, text('Hi'), completed())
  const told = new Map<number, number>()
  // More than may wait concurrently. A body that is not JSON is refused with 415 when it is parsed.
  const strike = async () => {
    while ((told.get(429) ?? 0) < 40) {
      const answer = await fetch(`${service.baseUrl}/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${account.apiKey}`, 'content-type': 'text/plain' },
        body: 'hello',
      })
      const { error } = (await answer.json()) as { error: { code: string } }
      told.set(answer.status, (told.get(answer.status) ?? 0) + 1)
      if (answer.status !== 429) continue
      assert.equal(error.code, 'rate_limited')
      assert.equal(answer.headers.get('retry-after'), '1')
      assert.equal(answer.headers.get('x-should-retry'), 'true')
    }
  }
  const attack = Promise.all(Array.from({ length: 120 }, strike))
  await until(() => told.get(429))
  for (const apiKey of [otherKey, stranger.apiKey]) {
    assert.equal((await postChat(service, apiKey, hi)).status, 200)
    assert.equal((await post('/quote', apiKey, hi)).status, 200)
  }
  await attack
  // On a machine that is too slow to look up the key in time, some get an error that says so.
  told.delete(503)
  assert.deepEqual([...told.keys()].sort(), [415, 429])
  // Its mistake corrected, the key is served again: at most a turn later, and paid requests cost none.
  for (let time = 0; time < 5; time += 1) {
    const served = await until(async () => {
      const answer = await postChat(service, account.apiKey, hi)
      return answer.status === 429 ? undefined : answer
    })
    assert.equal(served.status, 200)
  }
})
