import assert from 'node:assert/strict'
import { once } from 'node:events'
import { Agent, type IncomingMessage, request } from 'node:http'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { signInNew } from '../../test/support/dashboard-client.ts'
import { answers, completed, created, text } from '../../test/support/scripted-upstream.ts'
import { postChat, startTestService, type TestService } from '../../test/support/service.ts'
import { serviceSuite } from '../../test/support/suites.ts'

// One customer against all: what asking for one's own log cannot take from the others.

const suite = serviceSuite()
const hi = { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 16 }

const ask = async (path: string, apiKey: string) => {
  const answer = await fetch(new URL(path, suite.service.baseUrl), { headers: { authorization: `Bearer ${apiKey}` } })
  await answer.arrayBuffer()
  return answer.status
}

test('what each request cost can be asked for without a limit', async () => {
  const { service, upstream } = suite
  const account = await service.openAccount('1')
  upstream.answer = answers(created, text('Hi'), completed())
  const id = (await postChat(service, account.apiKey, hi)).headers.get('x-router-request-id')
  const asked = await Promise.all(Array.from({ length: 250 }, () => ask(`/api/requests/${id}`, account.apiKey)))
  assert.deepEqual(new Set(asked), new Set([200]))
})

// Queries of the dashboard occupied the connections on which keys are looked up: chat requests waited for seconds, or got 503.
test('a chat request and a quote are served while every connection of the dashboard is occupied', async () => {
  const { service, upstream } = suite
  const honest = await service.openAccount('1')
  const greedy = await Promise.all(Array.from({ length: 6 }, () => service.openAccount('1')))
  upstream.answer = answers(created, text('Hi'), completed())
  const lock = Promise.withResolvers<void>()
  const isLocked = Promise.withResolvers<void>()
  // Lists wait for this lock: a slow query that needs no large table.
  const locking = service.database.transaction(async (connection) => {
    await connection.execute('lock table adjustments in access exclusive mode')
    isLocked.resolve()
    await lock.promise
  })
  await isLocked.promise
  const waiting = greedy.flatMap(({ apiKey }) => Array.from({ length: 5 }, () => ask('/api/requests', apiKey)))
  try {
    assert.equal((await postChat(service, honest.apiKey, hi)).status, 200)
    // Marked as a retry: its earlier attempts are looked up.
    const retried = fetch(`${service.baseUrl}/chat/completions`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${honest.apiKey}`,
        'content-type': 'application/json',
        'x-stainless-retry-count': '1',
      },
      body: JSON.stringify({ ...hi, stream: true }),
    })
    assert.equal((await retried).status, 200)
    const quoted = fetch(`${service.baseUrl}/quote`, {
      method: 'POST',
      headers: { authorization: `Bearer ${honest.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify(hi),
    })
    assert.equal((await quoted).status, 200)
  } finally {
    lock.resolve()
    await locking
    await Promise.all(waiting)
  }
})

/** A node whose rates regain nothing: on a slow machine the answers take so long that their account could ask again. */
async function startWithoutRegain(t: TestContext): Promise<TestService> {
  const service = await startTestService({ besideOf: suite.service, ratesNow: () => 0 })
  atEnd(t, () => service.stop())
  return service
}

// Answers of megabytes took a second of CPU time each, 20 a second: one account without money kept the event loop busy.
test('answers of megabytes count as many requests, and their account alone has to wait', async (t) => {
  const service = await startWithoutRegain(t)
  const [greedy, honest] = [await signInNew(service), await signInNew(service)]
  await service.database.query(
    `insert into usage_hours (partition, account_id, hour, key_id, model, refused)
     select partition, id, date_trunc('hour', now()), gen_random_uuid(), '', 1 from accounts, generate_series(1, 30) where id = $1`,
    [greedy.accountId],
  )
  const from = new Date(Date.now() - 790 * 86_400_000).toISOString()
  const usage = `/api/usage?granularity=day&group_by=key&from=${from}`
  const statuses = Array.from({ length: 6 }, async () => {
    const answer = await greedy.send('GET', usage)
    assert.ok((await answer.arrayBuffer()).byteLength > 6e6)
    return answer.status
  })
  assert.deepEqual(new Set(await Promise.all(statuses)), new Set([200]))
  assert.deepEqual(await greedy.refusal('GET', usage), [429, 'rate_limited'])
  assert.equal((await greedy.send('GET', '/api/balance')).status, 200)
  assert.equal((await honest.send('GET', usage)).status, 200)
})

test('the keys in an export count as many requests, also when the client reads no more of it', async (t) => {
  const service = await startWithoutRegain(t)
  const greedy = await signInNew(service)
  await service.database.query(
    `insert into api_keys (partition, id, account_id, name, hint, allowed_models)
     select partition, gen_random_uuid(), id, 'long', '', array_fill(repeat('x', 1000), array[50])
       from accounts, generate_series(1, 540) where id = $1`,
    [greedy.accountId],
  )
  const answer = await greedy.send('GET', '/api/export')
  const reader = answer.body!.getReader()
  await reader.read()
  await reader.cancel()
  assert.deepEqual(await greedy.refusal('GET', '/api/requests/totals'), [429, 'rate_limited'])
})

test('above the rate of sign-ins a network is refused slowly, and a customer behind another address is not', async (t) => {
  const { service } = suite
  const account = await service.openAccount('1')
  const agent = new Agent({ keepAlive: true, maxSockets: 100 })
  atEnd(t, () => agent.destroy())
  const signIn = async () => {
    // A network of its own: what other tests ask for is not delayed.
    const options = { agent, localAddress: '127.0.0.77', method: 'POST' }
    const outgoing = request(new URL('/api/auth/nonce', service.baseUrl), options)
    let sentMs = 0
    outgoing.once('finish', () => {
      sentMs = performance.now()
    })
    outgoing.end()
    const [answer] = (await once(outgoing, 'response')) as [IncomingMessage]
    const tookMs = performance.now() - sentMs
    answer.resume()
    await once(answer, 'end')
    return { status: answer.statusCode, tookMs }
  }
  const asked = await Promise.all(Array.from({ length: 100 }, signIn))
  const refused = asked.filter(({ status }) => status === 429)
  assert.ok(asked.length - refused.length >= 60)
  assert.ok(refused.length > 0)
  const fastestMs = Math.min(...refused.map(({ tookMs }) => tookMs))
  assert.ok(fastestMs >= 990, `refused after ${fastestMs} ms`)
  assert.equal(await ask('/api/requests', account.apiKey), 200)
})
