import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { assertBooksClosed } from '../support/audit.ts'
import { type DashboardClient, type Json, signInNew } from '../support/dashboard-client.ts'
import {
  completed,
  created,
  functionCall,
  inTurn,
  type ScriptedUpstream,
  startScriptedUpstream,
  text,
} from '../support/scripted-upstream.ts'
import { startScriptedWeb } from '../support/scripted-web.ts'
import { getRow, postChat, startTestService, type TestService, withoutTools } from '../support/service.ts'

// Two nodes on one database: what is changed on one applies to the next request on the other.

let upstream: ScriptedUpstream
let service: TestService
let other: TestService
let client: DashboardClient
before(async () => {
  upstream = await startScriptedUpstream()
  upstream.answer = answering
  const options = { upstreamUrl: upstream.url, environment: { TRUST_PROXY: 'true' }, web: startScriptedWeb().tools }
  service = await startTestService({ ...options })
  other = await startTestService({ ...options, besideOf: service })
  client = await signInNew(service, '25')
})
after(async () => {
  try {
    await assertBooksClosed(service.database)
  } finally {
    await other.stop()
    await service.stop()
    await upstream.close()
  }
})

const messages = [{ role: 'user', content: 'What is a penny?' }]
const question = { messages, max_tokens: 100, ...withoutTools }
const restricted = {
  allowed_models: ['gpt-5.6-luna', 'gpt-5.6-sol'],
  max_request_cost: '0.05',
  web_tools: false,
  allowed_ips: ['203.0.113.0/24', '2001:db8::/32'],
}

function answering(exchange: Parameters<ScriptedUpstream['answer']>[0]): void {
  exchange.send(created, text('A coin.'), completed())
  exchange.end()
}

type Refusal = { status: number; code: string; message: string; [extra: string]: unknown }

async function refusalOf(answer: Response): Promise<Refusal> {
  const { error } = (await answer.json()) as { error: Omit<Refusal, 'status'> }
  return { status: answer.status, ...error } as Refusal
}

async function createKey(terms: object): Promise<{ id: string; secret: string } & Json> {
  return client.post('/api/keys', { name: 'restricted', ...terms })
}

async function quoteOf(secret: string, body: object): Promise<Json> {
  const answer = await fetch(`${service.baseUrl}/quote`, {
    method: 'POST',
    headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  return answer.json()
}

test('a key is created with its options, shows them to its owner and to itself, and keeps them when it is rotated', async () => {
  const made = await createKey(restricted)
  const options = { ...restricted, max_request_cost_atomic: '50000' }
  const pick = (key: Json) => Object.fromEntries(Object.keys(options).map((name) => [name, key[name]]))
  assert.deepEqual(pick(made), options)
  const rotated = await client.post(`/api/keys/${made.id}/rotate`)
  assert.deepEqual(pick(rotated), options)
  assert.deepEqual(pick(await client.get(`/api/keys/${made.id}`)), options)
  const headers = { authorization: `Bearer ${rotated.secret}`, 'x-forwarded-for': '203.0.113.9' }
  assert.deepEqual(pick(await (await fetch(`${service.origin}/api/key`, { headers })).json()), options)
  const cleared = await client.patch(`/api/keys/${made.id}`, {
    allowed_models: [],
    max_request_cost: null,
    web_tools: true,
    allowed_ips: [],
  })
  const none = {
    allowed_models: [],
    max_request_cost: null,
    max_request_cost_atomic: null,
    web_tools: true,
    allowed_ips: [],
  }
  assert.deepEqual(pick(cleared), none)
  assert.deepEqual(pick(await createKey({})), none)
})

test('options that cannot be meant are refused by name', async () => {
  const wrong: [object, string][] = [
    [{ allowed_models: ['gpt-nothing'] }, 'allowed_models'],
    [{ allowed_models: 'gpt-5.6-luna' }, 'allowed_models'],
    [{ allowed_ips: ['203.0.113.0/33'] }, 'allowed_ips[0]'],
    [{ allowed_ips: ['2001:db8::/32', 'localhost'] }, 'allowed_ips[1]'],
    [{ max_request_cost: '0' }, 'max_request_cost'],
    [{ max_request_cost: '0.0000001' }, 'max_request_cost'],
    [{ web_tools: 'off' }, 'web_tools'],
  ]
  const { id } = await createKey({})
  for (const [terms, param] of wrong) {
    for (const [method, path] of [
      ['POST', '/api/keys'],
      ['PATCH', `/api/keys/${id}`],
    ] as const) {
      const answer = await client.send(method, path, { name: 'wrong', ...terms })
      const error = await refusalOf(answer)
      assert.deepEqual([answer.status, error.param], [400, param], JSON.stringify(error))
    }
  }
})

test('a key uses only its models: others are refused before anything is held, and not listed', async () => {
  const { secret, id } = await createKey({ allowed_models: ['gpt-5.6-luna'] })
  const before = upstream.exchanges.length
  for (const body of [question, { ...question, model: 'gpt-5.6-sol' }]) {
    const answer = await postChat(service, secret, body)
    const requestId = answer.headers.get('x-router-request-id')!
    const error = await refusalOf(answer)
    assert.deepEqual([error.status, error.code, error.param], [403, 'model_not_allowed', 'model'])
    assert.match(error.message, /gpt-5\.6-luna/)
    assert.equal(answer.headers.get('x-should-retry'), 'false')
    assert.equal(answer.headers.get('x-router-held-usdc'), null)
    const quoted = await quoteOf(secret, body)
    assert.deepEqual([quoted.admitted, quoted.refusal.code], [false, 'model_not_allowed'])
    assert.match(requestId, /^req_/)
  }
  assert.equal(upstream.exchanges.length, before)
  assert.equal((await postChat(service, secret, { ...question, model: 'gpt-5.6-luna' })).status, 200)
  const list = async (path: string) =>
    fetch(`${service.baseUrl}${path}`, { headers: { authorization: `Bearer ${secret}` } })
  const listed = (await (await list('/models')).json()) as Json
  assert.deepEqual([listed.data.map((model: Json) => model.id), listed.total_count], [['gpt-5.6-luna'], 1])
  assert.equal((await list('/models/gpt-5.6-luna')).status, 200)
  assert.equal((await refusalOf(await list('/models/gpt-5.6-sol'))).code, 'model_not_allowed')
  // Without a key, or with one that is not good, the list is everybody's.
  for (const headers of [undefined, { authorization: 'Bearer penny_nonsense' }]) {
    const all = (await (await fetch(`${service.baseUrl}/models`, { headers: headers ?? {} })).json()) as Json
    assert.ok(all.total_count > 1)
  }
  const details = await client.get(`/api/keys/${id}`)
  assert.deepEqual(
    details.refusals.map(({ code }: Json) => code),
    ['model_not_allowed'],
  )
})

test('a key without web tools is not offered them, and refused when it asks for them', async () => {
  const { secret } = await createKey({ web_tools: false })
  for (const param of ['web_search', 'web_fetch']) {
    const body = { messages, max_tokens: 100, [param]: true }
    const error = await refusalOf(await postChat(service, secret, body))
    assert.deepEqual([error.status, error.code, error.param], [403, 'web_tools_not_allowed', param])
    const quoted = await quoteOf(secret, body)
    assert.deepEqual([quoted.admitted, quoted.refusal.code], [false, 'web_tools_not_allowed'])
  }
  const answer = await postChat(service, secret, { messages, max_tokens: 100 })
  assert.equal(answer.status, 200)
  assert.equal(upstream.exchanges.at(-1)!.body.tools, undefined)
  assert.equal((await quoteOf(secret, { messages })).search_max_atomic, '0')
  const free = await createKey({})
  await postChat(service, free.secret, { messages, max_tokens: 100 })
  assert.equal((upstream.exchanges.at(-1)!.body.tools as unknown[]).length, 2)
})

test('a request that could cost more than the key’s cap is refused with both numbers, what searches can add included', async () => {
  const { secret } = await createKey({ max_request_cost: '0.01' })
  const dear = { ...question, max_tokens: 8_000 }
  const error = await refusalOf(await postChat(service, secret, dear))
  assert.deepEqual(
    [error.status, error.code, error.key_cap, error.search_max],
    [403, 'quote_exceeds_key_cap', '0.01', '0'],
  )
  assert.ok(
    error.message.includes(`up to ${error.required} USDC`) && error.message.includes('allows 0.01 USDC per request'),
  )
  const quoted = await quoteOf(secret, dear)
  assert.deepEqual([quoted.admitted, quoted.refusal.code, quoted.quote], [false, 'quote_exceeds_key_cap', error.quote])
  // What it says is affordable is admitted, and one token more is not.
  const most = Number(error.affordable_max_tokens)
  assert.equal((await postChat(service, secret, { ...dear, max_tokens: most })).status, 200)
  assert.equal((await postChat(service, secret, { ...dear, max_tokens: most + 1 })).status, 403)
  // The quote alone would fit; three searches and what they make the model read would not.
  const searching = await refusalOf(await postChat(service, secret, { messages, max_tokens: 100 }))
  assert.equal(searching.code, 'quote_exceeds_key_cap')
  assert.ok(Number(searching.quote) < 0.01 && Number(searching.required) > 0.01, JSON.stringify(searching))
  assert.match(searching.message, /web_search: false/)
  assert.equal((await postChat(service, secret, question)).status, 200)
})

test('a turn that searches never costs more than the cap that admitted it', async () => {
  const quoted = await quoteOf((await createKey({})).secret, { messages, max_tokens: 1_000 })
  const cap = (Number(quoted.quote_atomic) + Number(quoted.search_max_atomic)) / 1e6
  const { secret } = await createKey({ max_request_cost: String(cap) })
  const search = functionCall('web_search', { query: 'penny' })
  upstream.answer = inTurn([search, search, search, [text('A coin.')]], { input_tokens: 100, output_tokens: 900 })
  const answer = await postChat(service, secret, { messages, max_tokens: 1_000 })
  upstream.answer = answering
  assert.equal(answer.status, 200)
  const row = await getRow(service, secret, answer)
  assert.ok(row.cost.search_calls > 0)
  assert.ok(Number(row.charged_atomic) <= cap * 1e6, `${row.charged_atomic} of ${cap}`)
  const lower = await createKey({ max_request_cost: (cap - 0.000001).toFixed(6) })
  assert.equal((await postChat(service, lower.secret, { messages, max_tokens: 1_000 })).status, 403)
})

test('cap and limit hold together when fifty requests come at once', async () => {
  const { secret, id } = await createKey({ max_request_cost: '0.002', limit: '0.01' })
  const sent = Array.from({ length: 50 }, (_, index) =>
    postChat(index % 2 === 0 ? service : other, secret, { ...question, max_tokens: index % 5 === 0 ? 1_000 : 300 }),
  )
  const answered = await Promise.all(sent)
  const codes = await Promise.all(
    answered.map(async (answer) => (answer.ok ? 'served' : (await refusalOf(answer)).code)),
  )
  assert.ok(codes.includes('served') && codes.includes('key_limit_exceeded'))
  for (const [index, code] of codes.entries()) assert.equal(code === 'quote_exceeds_key_cap', index % 5 === 0, code)
  const key = await client.get(`/api/keys/${id}`)
  assert.ok(Number(key.spent_atomic) <= 10_000 && key.held_atomic === '0')
})

test('a key works only from its addresses, IPv4 and IPv6, on every route it opens', async () => {
  const { secret, id } = await createKey({ allowed_ips: ['203.0.113.0/24', '198.51.100.7', '2001:db8::/32'] })
  const from = (address: string) => ({ headers: { 'x-forwarded-for': `192.0.2.66, ${address}` } })
  for (const address of ['203.0.113.200', '198.51.100.7', '2001:db8:1::7', '::ffff:203.0.113.1']) {
    assert.equal((await postChat(service, secret, question, from(address))).status, 200, address)
  }
  for (const address of ['203.0.114.1', '198.51.100.8', '2001:db9::1', '203.0.113.7.example', '']) {
    const error = await refusalOf(await postChat(service, secret, question, from(address)))
    assert.deepEqual([error.status, error.code], [403, 'ip_not_allowed'], address)
  }
  for (const path of ['/api/key', '/api/requests', '/v1/quote']) {
    const answer = await fetch(`${service.origin}${path}`, {
      method: path === '/v1/quote' ? 'POST' : 'GET',
      headers: {
        authorization: `Bearer ${secret}`,
        'x-forwarded-for': '203.0.114.1',
        'content-type': 'application/json',
      },
      ...(path === '/v1/quote' && { body: JSON.stringify(question) }),
    })
    assert.deepEqual([answer.status, (await refusalOf(answer)).code], [403, 'ip_not_allowed'], path)
  }
  // The other node has this key in its cache by now.
  assert.equal((await postChat(other, secret, question, from('203.0.113.200'))).status, 200)
  await client.patch(`/api/keys/${id}`, { allowed_ips: ['192.0.2.0/24'] })
  assert.equal((await postChat(other, secret, question, from('203.0.113.200'))).status, 403)
  assert.equal((await postChat(other, secret, question, from('192.0.2.200'))).status, 200)
})

test('a change applies to the next request on every node, whatever they have cached', async () => {
  const { secret, id } = await createKey({})
  const luna = { ...question, model: 'gpt-5.6-luna' }
  const refuses = [
    [{ allowed_models: ['gpt-5.6-sol'] }, 'model_not_allowed'],
    [{ allowed_models: [], max_request_cost: '0.000001' }, 'quote_exceeds_key_cap'],
    [{ max_request_cost: null, allowed_ips: ['203.0.113.7'] }, 'ip_not_allowed'],
  ] as const
  for (const [change, code] of refuses) {
    for (const node of [service, other]) assert.equal((await postChat(node, secret, luna)).status, 200)
    await client.patch(`/api/keys/${id}`, change)
    for (const node of [other, service]) assert.equal((await refusalOf(await postChat(node, secret, luna))).code, code)
    await client.patch(`/api/keys/${id}`, { allowed_models: [], max_request_cost: null, allowed_ips: [] })
  }
  for (const node of [other, service]) assert.equal((await postChat(node, secret, luna)).status, 200)
})

test('a retry gets its recorded answer under the key’s cap of now, and none from a model the key lost', async () => {
  const { secret, id } = await createKey({})
  const headers = { 'idempotency-key': 'once' }
  const luna = { ...question, model: 'gpt-5.6-luna' }
  assert.equal((await postChat(service, secret, luna, { headers })).status, 200)
  const asked = upstream.exchanges.length
  // The answer is paid for: giving it again costs nothing that a cap could forbid.
  await client.patch(`/api/keys/${id}`, { max_request_cost: '0.000001' })
  const replay = await postChat(other, secret, luna, { headers })
  assert.deepEqual([replay.status, replay.headers.get('idempotent-replayed')], [200, 'true'])
  await client.patch(`/api/keys/${id}`, { allowed_models: ['gpt-5.6-sol'] })
  for (const node of [service, other]) {
    assert.equal((await refusalOf(await postChat(node, secret, luna, { headers }))).code, 'model_not_allowed')
  }
  assert.equal(upstream.exchanges.length, asked)
  // A refused attempt leaves its Idempotency-Key free.
  await client.patch(`/api/keys/${id}`, { allowed_models: [], max_request_cost: '0.000001' })
  const later = { headers: { 'idempotency-key': 'later' } }
  assert.equal((await postChat(service, secret, luna, later)).status, 403)
  await client.patch(`/api/keys/${id}`, { max_request_cost: null })
  assert.equal((await postChat(service, secret, luna, later)).status, 200)
})

test('a request that was decided again because its key changed is one request: its retry gets its answer', async () => {
  const { secret, id } = await createKey({})
  const attempt = (count: number) =>
    postChat(other, secret, question, { headers: { 'x-stainless-retry-count': String(count) } })
  // The other node knows the key as it was before the change.
  assert.equal((await postChat(other, secret, question)).status, 200)
  await client.patch(`/api/keys/${id}`, { web_tools: false })
  assert.equal((await attempt(0)).status, 200)
  const asked = upstream.exchanges.length
  const replay = await attempt(1)
  assert.deepEqual([replay.status, replay.headers.get('idempotent-replayed')], [200, 'true'])
  assert.equal(upstream.exchanges.length, asked)
})

test('the playground answers under the options of the chosen key', async () => {
  const { id } = await createKey({ allowed_models: ['gpt-5.6-luna'], web_tools: false, max_request_cost: '0.01' })
  const refusals: [object, string][] = [
    [{ ...question, model: 'gpt-5.6-sol' }, 'model_not_allowed'],
    [{ messages, model: 'gpt-5.6-luna', max_tokens: 100, web_search: true }, 'web_tools_not_allowed'],
    [{ ...question, model: 'gpt-5.6-luna', max_tokens: 60_000 }, 'quote_exceeds_key_cap'],
  ]
  for (const [body, code] of refusals) {
    assert.deepEqual(await client.refusal('POST', '/api/playground', { key_id: id, ...body }), [403, code])
    const quoted = await client.post('/api/quote', { key_id: id, ...body })
    assert.deepEqual([quoted.admitted, quoted.refusal.code], [false, code])
  }
  const body = { key_id: id, messages, model: 'gpt-5.6-luna', max_tokens: 100 }
  assert.equal((await client.send('POST', '/api/playground', body)).status, 200)
  assert.equal((await client.post('/api/quote', body)).admitted, true)
})
