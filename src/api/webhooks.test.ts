import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type TestContext, test } from 'node:test'
import { Webhook } from 'standardwebhooks'
import { atEnd } from '../../test/support/at-end.ts'
import { type Json, signInNew } from '../../test/support/dashboard-client.ts'
import { earlier } from '../../test/support/earlier.ts'
import { completed, created, text } from '../../test/support/scripted-upstream.ts'
import { postChat } from '../../test/support/service.ts'
import { serviceSuite } from '../../test/support/suites.ts'
import { until } from '../../test/support/until.ts'
import { deliverWebhooks } from '../jobs/deliver-webhooks.ts'
import { webhookContracts } from '../openapi/contracts/webhooks.ts'
import { openSafePost } from '../tools/web-tools.ts'
import { Deliverer } from '../webhooks/deliverer.ts'
import { deleteOldDeliveries } from '../webhooks/deliveries.ts'

// No mail server listens there: mail waits.
const suite = serviceSuite({ SMTP_URL: 'smtp://127.0.0.1:9' })

// A change without a row in the log must not have happened.
test('settings are changed only together with their row in the account log', async () => {
  const { database } = suite.service
  const client = await signInNew(suite.service)
  const broken = `check (account_id <> '${client.accountId}') not valid`
  const terms = { url: 'https://example.com/hook', types: ['deposit.credited'] }
  const { id } = await client.post('/api/webhooks', terms)
  const settings = async () => [
    await database.query('select name from accounts where id = $1', [client.accountId]),
    await client.get('/api/alerts/rules'),
    await client.get('/api/webhooks'),
  ]
  const before = await settings()
  await database.execute(`alter table account_log add constraint broken ${broken}`)
  try {
    const statuses = []
    for (const [method, path, body] of [
      ['POST', '/api/webhooks', terms],
      ['PATCH', `/api/webhooks/${id}`, { description: 'other' }],
      ['POST', `/api/webhooks/${id}/rotate`, {}],
      ['DELETE', `/api/webhooks/${id}`, undefined],
      ['PATCH', '/api/account', { name: 'other' }],
      ['PATCH', '/api/account', { alerts: { balance_below: '5' } }],
    ] as const)
      statuses.push((await client.send(method, path, body)).status)
    assert.deepEqual(statuses, [500, 500, 500, 500, 500, 500])
  } finally {
    await database.execute('alter table account_log drop constraint broken')
  }
  assert.deepEqual(await settings(), before)
})

test('the account log says who set, confirmed and removed the address for alerts', async () => {
  const { database } = suite.service
  const client = await signInNew(suite.service, '1')
  const address = 'ops@example.com'
  assert.equal((await client.send('PUT', '/api/alerts/email', { address })).status, 200)
  const mail = () =>
    database.query<{ body: string }>('select body from alert_mails where account_id = $1', [client.accountId])
  const [link] = await mail()
  const token = /verify-email=([\w-]{43})/.exec(link!.body)![1]!
  await client.post('/api/alerts/email/verify', { token })
  assert.equal((await client.refusal('POST', '/api/alerts/email/verify', { token }))[0], 404)
  await client.delete('/api/alerts/email')
  await client.delete('/api/alerts/email')
  const { data } = await client.get('/api/log')
  const rows = data.filter(({ event }: Json) => event.startsWith('alert_email'))
  assert.deepEqual(rows.map(({ event, facts }: Json) => [event, facts.name]).reverse(), [
    ['alert_email_set', address],
    ['alert_email_confirmed', address],
    ['alert_email_removed', address],
  ])
  assert.ok(!JSON.stringify(data).includes(token))
})

type Received = { readonly headers: IncomingHttpHeaders; readonly body: string }

/** A receiver on this machine, which answers with the statuses it is given, then with 204. */
async function startReceiver(t: TestContext, ...statuses: number[]) {
  const received: Received[] = []
  const server = createServer(async (incoming, outgoing) => {
    const chunks: Buffer[] = []
    for await (const chunk of incoming) chunks.push(chunk)
    received.push({ headers: incoming.headers, body: Buffer.concat(chunks).toString() })
    outgoing.writeHead(statuses.shift() ?? 204).end('thank you')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  atEnd(t, async () => {
    server.closeAllConnections()
    server.close()
  })
  return { received, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook` }
}

function delivererOptions(disabled: string[] = []) {
  const { database, origin } = suite.service
  return {
    database,
    post: openSafePost({ publicUrl: origin, version: 'test', allowsLoopback: true }),
    onDisabled: (_endpoint: unknown, reason: string) => void disabled.push(reason),
    onAttempt: () => {},
    onError: (error: unknown) => {
      throw error
    },
  }
}

/** Runs the deliverer once: sends what is due. */
async function deliver(disabled?: string[]): Promise<void> {
  const deliverer = new Deliverer(delivererOptions(disabled))
  await deliverer.deliverDue()
  await deliverer.drained()
}

/** As if the pauses after failed attempts were over. */
async function skipPauses(): Promise<void> {
  const { database } = suite.service
  await database.query('update webhook_endpoints set due_at = now()')
  await database.query(`update webhook_deliveries set due_at = now() where state = 'waiting'`)
}

/** Pauses that have begun last longer than any test: on a slow machine the first one, of five seconds, could end too early. */
async function prolongPauses(): Promise<void> {
  const { database } = suite.service
  for (const table of ['webhook_endpoints', 'webhook_deliveries'])
    await database.query(`update ${table} set ${earlier('due_at', "interval '-1 hour'")} where due_at > now()`)
}

/** As the library for receivers does it: throws when the message is not genuine. */
function verify(secret: string, { headers, body }: Received): Json {
  return new Webhook(secret).verify(body, headers as Record<string, string>)
}

async function chat(secret: string): Promise<string> {
  suite.upstream.answer = (exchange) => {
    exchange.send(created, text('A coin.'), completed({ input_tokens: 11, output_tokens: 7, total_tokens: 18 }))
    exchange.end()
  }
  const answer = await postChat(suite.service, secret, { messages: [{ role: 'user', content: 'What is a penny?' }] })
  await answer.arrayBuffer()
  return answer.headers.get('x-router-request-id')!
}

test('a receiver that fails three times gets the event again, and the log shows every attempt', async (t) => {
  const client = await signInNew(suite.service, '10')
  const key = await client.post('/api/keys', { name: 'first' })
  const receiver = await startReceiver(t, 500, 503, 302)
  const endpoint = await client.post('/api/webhooks', { url: receiver.url, types: ['request.ended'] })
  const requestId = await chat(key.secret)
  for (let attempt = 0; attempt < 4; attempt += 1) {
    await deliver()
    await prolongPauses()
    // Nothing more is sent before the pause is over.
    await deliver()
    assert.equal(receiver.received.length, attempt + 1)
    await skipPauses()
  }
  const messages = receiver.received.map((one) => verify(endpoint.secret, one))
  assert.deepEqual(new Set(receiver.received.map(({ headers }) => headers['webhook-id'])).size, 1)
  assert.deepEqual(new Set(receiver.received.map(({ body }) => body)).size, 1)
  const row = await client.get(`/api/requests/${requestId}`)
  assert.partialDeepStrictEqual(messages[0], {
    type: 'request.ended',
    account_id: client.accountId,
    sequence: 1,
    data: { id: requestId, status: 'succeeded', charged: row.charged, charged_atomic: row.charged_atomic },
  })

  const { data: log } = await client.get(`/api/webhooks/${endpoint.id}/deliveries`)
  assert.equal(log.length, 1)
  webhookContracts.listWebhookDeliveries.answer.parse(await client.get(`/api/webhooks/${endpoint.id}/deliveries`))
  assert.deepEqual(
    [log[0].state, log[0].body, log[0].attempts.map(({ status }: Json) => status)],
    ['delivered', receiver.received[0]!.body, [500, 503, 302, 204]],
  )
  assert.deepEqual(log[0].attempts[0].answer, 'thank you')

  // "Send again".
  await client.post(`/api/webhooks/${endpoint.id}/deliveries/${log[0].id}/resend`)
  await deliver()
  assert.equal(receiver.received.length, 5)
  assert.equal(receiver.received[4]!.headers['webhook-id'], log[0].id)
})

test('one event that a receiver rejects does not keep the others from it', async (t) => {
  const client = await signInNew(suite.service, '10')
  const receiver = await startReceiver(t, 400)
  await client.post('/api/webhooks', { url: receiver.url, types: ['key.created'] })
  const names = ['one', 'two', 'three']
  for (const name of names) await client.post('/api/keys', { name })
  await deliver()
  await prolongPauses()
  const { database } = suite.service
  await database.query('update webhook_endpoints set due_at = now()')
  await deliver()
  const seen = () => receiver.received.map(({ body }) => JSON.parse(body).data.name)
  assert.deepEqual(seen(), names)
  await skipPauses()
  await deliver()
  assert.deepEqual(seen(), [...names, 'one'])
})

test('the name of a key cannot change what a message says, nor what a terminal does', async (t) => {
  const client = await signInNew(suite.service)
  const receiver = await startReceiver(t)
  const { secret } = await client.post('/api/webhooks', { url: receiver.url, types: ['key.created'] })
  const names = [
    '"},"type":"deposit.credited","data":{"amount":"1"',
    '__proto__',
    '</script>\u202e\u2028x',
    '\ud83d\ude00_atomic',
  ]
  for (const name of names) await client.post('/api/keys', { name })
  for (const name of ['\u001b[2J', 'two\nlines', '\u009b31m'])
    assert.deepEqual(await client.refusal('POST', '/api/keys', { name }), [400, 'invalid_value'], name)
  await deliver()
  assert.deepEqual(
    receiver.received.map((one) => verify(secret, one)).map(({ type, data }) => [type, data.name]),
    names.map((name) => ['key.created', name]),
  )
})

test('during a rotation messages are signed with the old secrets too, then with the new one alone', async (t) => {
  const client = await signInNew(suite.service)
  const receiver = await startReceiver(t)
  const { id, secret: old } = await client.post('/api/webhooks', { url: receiver.url, types: ['key.created'] })
  const { secret } = await client.post(`/api/webhooks/${id}/rotate`, { overlap_seconds: 3_600 })
  await client.post(`/api/webhooks/${id}/test`)
  await deliver()
  const [both] = receiver.received
  assert.equal(String(both!.headers['webhook-signature']).split(' ').length, 2)
  assert.deepEqual([verify(old, both!).type, verify(secret, both!).type], ['webhook.test', 'webhook.test'])
  // Rotated again, because the answer was lost: the receiver still has the first secret.
  const { secret: newest } = await client.post(`/api/webhooks/${id}/rotate`, {})
  await client.post(`/api/webhooks/${id}/test`)
  await deliver()
  for (const one of [old, secret, newest]) verify(one, receiver.received[1]!)
  await suite.service.database.query(
    `update webhook_endpoints set old_secrets_until = array[now() + interval '1 hour', now() - interval '1 second'] where id = $1`,
    [id],
  )
  await client.post(`/api/webhooks/${id}/test`)
  await deliver()
  for (const one of [secret, newest]) verify(one, receiver.received[2]!)
  assert.throws(() => verify(old, receiver.received[2]!))
  const { secret: only } = await client.post(`/api/webhooks/${id}/rotate`, { overlap_seconds: 0 })
  await client.post(`/api/webhooks/${id}/test`)
  await deliver()
  verify(only, receiver.received[3]!)
  assert.equal(String(receiver.received[3]!.headers['webhook-signature']).split(' ').length, 1)
  for (let count = 0; count < 10; count += 1) await client.post(`/api/webhooks/${id}/rotate`, {})
  assert.deepEqual(await client.refusal('POST', `/api/webhooks/${id}/rotate`, {}), [400, 'invalid_value'])
  const [endpoint] = (await client.get('/api/webhooks')).data
  assert.equal(endpoint.old_secrets_until.length, 10)
})

test('an account neither sees nor touches the webhooks of another', async (t) => {
  const [client, stranger] = [await signInNew(suite.service), await signInNew(suite.service)]
  const receiver = await startReceiver(t)
  const { id } = await client.post('/api/webhooks', { url: receiver.url, types: ['key.created'] })
  await client.post(`/api/webhooks/${id}/test`)
  const { data } = await client.get(`/api/webhooks/${id}/deliveries`)
  for (const [method, path, body] of [
    ['GET', ''],
    ['PATCH', '', { enabled: false }],
    ['POST', '/rotate', {}],
    ['POST', '/test', {}],
    ['GET', '/deliveries'],
    ['POST', `/deliveries/${data[0].id}/resend`, {}],
    ['DELETE', ''],
  ] as const)
    assert.deepEqual(await stranger.refusal(method, `/api/webhooks/${id}${path}`, body), [404, 'not_found'], path)
  assert.deepEqual((await stranger.get('/api/webhooks')).data, [])
  assert.equal((await client.get('/api/webhooks')).data.length, 1)
  const { webhooks } = await client.get('/api/export')
  assert.deepEqual(
    webhooks.map((webhook: Json) => [webhook.id, 'secret' in webhook]),
    [[id, false]],
  )
  assert.equal(
    (await client.refusal('POST', `/api/webhooks/${id}/deliveries/evt_${'0'.repeat(32)}/resend`, {}))[0],
    404,
  )
  await client.delete(`/api/webhooks/${id}`)
  await deliver()
  assert.deepEqual(receiver.received, [])
})

test('only public https addresses are taken, and names of private ones are never called', async () => {
  const client = await signInNew(suite.service)
  for (const url of [
    'https://10.0.0.1/',
    'https://169.254.169.254/latest/meta-data',
    'https://[fd00::1]/',
    'https://router.local/',
    'http://example.com/',
    'https://example.com:8443/',
    'https://user:secret@example.com/',
    'ftp://example.com/',
    'hello',
  ])
    assert.deepEqual(
      await client.refusal('POST', '/api/webhooks', { url, types: ['key.created'] }),
      [400, 'invalid_value'],
      url,
    )
  // A name that resolves to a private network is detected when it is called.
  const post = openSafePost({ publicUrl: suite.service.origin, version: 'test', allowsLoopback: false })
  await assert.rejects(
    post(new URL('http://127.0.0.1:80/'), { headers: {}, body: '', sender: 'test' }, new AbortController().signal),
    /public host/,
  )
})

test('an endpoint that answers 410 or fails for three days is disabled, and other endpoints get an event', async (t) => {
  const client = await signInNew(suite.service)
  const [gone, watching, dead] = [await startReceiver(t, 410), await startReceiver(t), await startReceiver(t, 500, 500)]
  const first = await client.post('/api/webhooks', { url: gone.url, types: ['key.created'] })
  await client.post('/api/webhooks', { url: watching.url, types: ['webhook.disabled'] })
  await client.post('/api/keys', { name: 'one' })
  const disabled: string[] = []
  await deliver(disabled)
  const { status, disabled_reason: reason } = await client.get(`/api/webhooks/${first.id}`)
  assert.deepEqual([status, reason], ['disabled', 'gone'])
  assert.equal((await client.refusal('POST', `/api/webhooks/${first.id}/test`, {}))[0], 400)

  const third = await client.post('/api/webhooks', { url: dead.url, types: ['key.created'] })
  await client.post('/api/keys', { name: 'two' })
  await deliver(disabled)
  const { database } = suite.service
  await database.query(`update webhook_endpoints set failing_since = now() - interval '73 hours' where id = $1`, [
    third.id,
  ])
  await skipPauses()
  await deliver(disabled)
  await deliver(disabled)
  assert.deepEqual(disabled, ['gone', 'failing'])
  const told = watching.received.map(({ body }) => JSON.parse(body).data)
  assert.deepEqual(
    told.map(({ id, reason }) => [id, reason]),
    [
      [first.id, 'gone'],
      [third.id, 'failing'],
    ],
  )
  // Enabled again, it gets events from then on.
  await client.post('/api/keys', { name: 'three' })
  await client.patch(`/api/webhooks/${third.id}`, { enabled: true })
  await client.post('/api/keys', { name: 'four' })
  await deliver()
  assert.equal(JSON.parse(dead.received.at(-1)!.body).data.name, 'four')
})

/** Writes this many events of a type into a watched account, as the ledger does. */
async function flood({ accountId }: { readonly accountId: string }, type: string, count: number): Promise<void> {
  const { database } = suite.service
  const [row] = await database.query<{ partition: number }>('select partition from accounts where id = $1', [accountId])
  await database.query(
    `select write_events($1, array(select row($2::uuid, $3, '{"name": "x"}')::event_call from generate_series(1, $4)))`,
    [row!.partition, accountId, type, count],
  )
}

// More than may be kept: the endpoint cannot get them all, and is disabled with a reason instead of losing some silently.
test('an endpoint that falls too far behind is disabled, and only what it wants counts', async (t) => {
  const [client, watched] = [await signInNew(suite.service), await signInNew(suite.service)]
  const [receiver, other] = [await startReceiver(t), await startReceiver(t)]
  const behind = await client.post('/api/webhooks', { url: receiver.url, types: ['key.created'] })
  const fine = await watched.post('/api/webhooks', { url: other.url, types: ['key.created'] })
  await suite.service.database.query('update accounts set watched_until = now() where id = $1', [watched.accountId])
  await flood(client, 'key.created', 10_001)
  await flood(watched, 'requests.started', 10_001)
  await watched.post('/api/keys', { name: 'wanted' })
  await deliver()
  assert.equal((await client.get(`/api/webhooks/${behind.id}`)).disabled_reason, 'behind')
  assert.equal((await watched.get(`/api/webhooks/${fine.id}`)).status, 'enabled')
  assert.deepEqual([receiver.received.length, other.received.length], [0, 1])
})

// An endpoint with nothing to send pauses until an event wakes it.
test('no event is missed that is written while its endpoint becomes idle', async (t) => {
  const client = await signInNew(suite.service)
  const receiver = await startReceiver(t)
  const { id } = await client.post('/api/webhooks', { url: receiver.url, types: ['key.created'] })
  const count = 40
  const writing = (async () => {
    for (let number = 0; number < count; number += 1) await flood(client, 'key.created', 1)
  })()
  await until(async () => {
    await deliver()
    return receiver.received.length === count
  })
  await writing
  await deliver()
  const rests = await suite.service.database.query(
    'select id from webhook_endpoints where due_at is null and id = $1',
    [id],
  )
  assert.deepEqual([rests.length, receiver.received.length], [1, count])
})

test('one process delivers at a time, and what a killed one was sending is sent by the next', async (t) => {
  const client = await signInNew(suite.service)
  const receiver = await startReceiver(t)
  await client.post('/api/webhooks', { url: receiver.url, types: ['key.created'] })
  await client.post('/api/keys', { name: randomUUID() })
  const pace = { busyMs: 20, idleTurns: 1, busyTurns: 1 }
  const options = { ...delivererOptions(), databaseUrl: suite.service.databaseUrl, pace }
  const begun = Promise.withResolvers<void>()
  // The process dies in the middle of a delivery: the message may have arrived, but the attempt is not stored.
  const killed = deliverWebhooks({
    ...options,
    post: (_url, _message, signal) => {
      begun.resolve()
      return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    },
  })
  await begun.promise
  const next = deliverWebhooks(options)
  atEnd(t, () => next.stop())
  await next.now()
  assert.equal(receiver.received.length, 0)
  await killed.stop()
  await until(() => receiver.received.length === 1)
})

// The deliverer looks every two seconds. An event, a resend and a test do not wait for that.
test('an event wakes the deliverer', { skip: process.env.TEST_CITUS_WORKERS !== undefined }, async (t) => {
  const client = await signInNew(suite.service)
  const receiver = await startReceiver(t)
  const { id } = await client.post('/api/webhooks', { url: receiver.url, types: ['key.created'] })
  const pace = { busyMs: 3_600_000, idleTurns: 1, busyTurns: 0 }
  const job = deliverWebhooks({ ...delivererOptions(), databaseUrl: suite.service.databaseUrl, pace })
  atEnd(t, () => job.stop())
  await job.now()
  const isIdle = async () => {
    const rows = await suite.service.database.query('select from webhook_endpoints where id = $1 and due_at is null', [
      id,
    ])
    return rows.length === 1
  }
  await until(isIdle)
  await client.post('/api/keys', { name: randomUUID() })
  await until(() => receiver.received.length === 1)
  await until(isIdle)
  await client.post(`/api/webhooks/${id}/test`, {})
  await until(() => receiver.received.length === 2)
})

/** Calls of port 9 hang until the test is over; `open` has the path of each. */
function hangingDeliverer(t: TestContext) {
  const options = delivererOptions()
  const open: string[] = []
  const deliverer = new Deliverer({
    ...options,
    post: (url, message, signal) => {
      if (url.port !== '9') return options.post(url, message, signal)
      open.push(url.pathname)
      return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    },
  })
  atEnd(t, async () => {
    await deliverer.stop()
    // Endpoints that hang would hold places in the next test.
    await suite.service.database.query('update webhook_endpoints set due_at = $1', ['infinity'])
  })
  return { deliverer, open }
}

/** An account with as many endpoints as it may have, none of which answers, and an event for each of them. */
async function openHostile(name: string, funds?: string): Promise<void> {
  const client = await signInNew(suite.service, funds)
  for (let count = 0; count < 10; count += 1)
    await client.post('/api/webhooks', { url: `http://127.0.0.1:9/${name}`, types: ['key.created'] })
  const eleventh = { url: 'http://127.0.0.1:9/', types: ['key.created'] }
  assert.deepEqual(await client.refusal('POST', '/api/webhooks', eleventh), [400, 'invalid_value'])
  await client.post('/api/keys', { name: 'dead' })
}

test('endpoints that answer are not delayed by any number of endpoints that do not', async (t) => {
  const client = await signInNew(suite.service)
  const receiver = await startReceiver(t)
  await client.post('/api/webhooks', { url: receiver.url, types: ['key.created'] })
  await client.post('/api/keys', { name: 'first' })
  await deliver()
  // More of them than the accounts' lane has places.
  await Promise.all(Array.from({ length: 10 }, (_, index) => openHostile(String(index))))
  const { deliverer, open } = hangingDeliverer(t)
  await deliverer.deliverDue()
  await until(() => open.length === 8)
  await client.post('/api/keys', { name: 'second' })
  await deliverer.deliverDue()
  await until(() => receiver.received.length === 2)
  assert.equal(open.length, 8)
  // All of them have one place before any has two.
  assert.equal(new Set(open).size, 8)
})

test('an account with many hanging endpoints does not delay the first delivery of another account', async (t) => {
  await openHostile('free')
  await openHostile('paying', '1')
  const { deliverer, open } = hangingDeliverer(t)
  // Repeatedly: the places that it holds are limited in total, not only per pass.
  for (let count = 0; count < 5; count += 1) await deliverer.deliverDue()
  const held = (name: string) => open.filter((path) => path === `/${name}`).length
  await until(() => held('paying') === 4 && held('free') === 2)
  const receivers = [await startReceiver(t), await startReceiver(t)] as const
  for (const [receiver, funds] of [
    [receivers[0], undefined],
    [receivers[1], '1'],
  ] as const) {
    const client = await signInNew(suite.service, funds)
    await client.post('/api/webhooks', { url: receiver.url, types: ['key.created'] })
    await client.post('/api/keys', { name: 'honest' })
  }
  await deliverer.deliverDue()
  await until(() => receivers.every(({ received }) => received.length === 1))
  assert.deepEqual([held('paying'), held('free')], [4, 2])
})

test('the log of an endpoint is bounded, and keeps the newest and what waits', async (t) => {
  const client = await signInNew(suite.service)
  const receiver = await startReceiver(t, 500)
  const { id } = await client.post('/api/webhooks', { url: receiver.url, types: ['key.created'] })
  for (const name of ['waits', 'old', 'kept', 'newest']) {
    await client.post('/api/keys', { name })
    await suite.service.database.query('update webhook_endpoints set due_at = now() where id = $1', [id])
    await deliver()
    await prolongPauses()
  }
  await deleteOldDeliveries(suite.service.database, 2)
  const { data } = await client.get(`/api/webhooks/${id}/deliveries`)
  assert.deepEqual(
    data.map(({ body }: Json) => JSON.parse(body).data.name),
    ['newest', 'kept', 'waits'],
  )
})
