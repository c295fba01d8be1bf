import assert from 'node:assert/strict'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { request } from 'node:http'
import { connect, createServer } from 'node:net'
import { after, before, test } from 'node:test'
import { createApiKey } from '../../src/identity/api-key-format.ts'
import { revokeKey } from '../../src/identity/api-keys.ts'
import { atEnd } from '../support/at-end.ts'
import { assertBooksBalance } from '../support/audit.ts'
import { signInNew } from '../support/dashboard-client.ts'
import { postChat, startTestService, type TestAccount, type TestService, withoutTools } from '../support/service.ts'

let service: TestService
let account: TestAccount
before(async () => {
  service = await startTestService({ environment: { BODY_BYTES_MAX: '100000' } })
  account = await service.openAccount('25')
})
after(async () => {
  try {
    await assertBooksBalance(service.database)
  } finally {
    await service.stop()
  }
})

const hello = [{ role: 'user', content: 'Hello' }]

// More than fits into what the kernel keeps: the client is still sending when it is refused.
const tooLarge = 32 * 1024 * 1024

for (const [how, framing] of [
  ['that says how long it is', `content-length: ${tooLarge}`],
  ['that does not', 'transfer-encoding: chunked'],
] as const) {
  test(`a client that sends a body too large, ${how}, reads why before the connection is closed`, async () => {
    const socket = connect(Number(new URL(service.origin).port), '127.0.0.1')
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: penny\r\nauthorization: Bearer ${account.apiKey}\r\n` +
        `content-type: application/json\r\n${framing}\r\n\r\n`,
    )
    const body = ' '.repeat(tooLarge)
    const isChunked = framing.startsWith('transfer')
    // Like many clients, it reads the response only after it has sent everything.
    await new Promise<void>((resolve, reject) => {
      socket.once('error', reject)
      const content = isChunked ? `${tooLarge.toString(16)}\r\n${body}\r\n0\r\n\r\n` : body
      socket.write(content, () => resolve())
    })
    const answer = Buffer.concat((await socket.toArray()) as Buffer[]).toString('utf8')
    assert.match(answer, /^HTTP\/1\.1 413 /)
    assert.match(answer, /connection: close/i)
    assert.match(answer, /"code":"body_too_large"/)
  })
}

// Each row: what is wrong, and the bytes.
for (const [what, bytes] of [
  ['no HTTP at all', 'hello\r\n\r\n'],
  ['two lengths', 'POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}'],
  ['headers without end', `GET /v1/models HTTP/1.1\r\nhost: a\r\nx: ${'a'.repeat(20_000)}\r\n\r\n`],
  ['a host that is none', 'GET /v1/models HTTP/1.1\r\nhost: a b\r\nconnection: close\r\n\r\n'],
  ['no host', 'POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}'],
  ['an unknown expectation', 'GET /v1/models HTTP/1.1\r\nhost: a\r\nexpect: the best\r\n\r\n'],
] as const) {
  test(`${what} is answered with an id and the envelope of every error`, async () => {
    const answer = await exchange(bytes)
    assert.match(answer, /^HTTP\/1\.1 400 Bad Request\r\n/)
    const [, id] = /\r\nx-router-request-id: (req_[0-9a-f]{32})\r\n/i.exec(answer)!
    const { error } = JSON.parse(answer.slice(answer.indexOf('\r\n\r\n'))) as { error: Record<string, string> }
    assert.deepEqual([error.type, error.code, error.request_id], ['invalid_request_error', 'invalid_value', id])
  })
}

for (const [how, target] of [
  ['whole, as to a proxy', 'http://penny.example/v1/chat/completions?a=b'],
  ['with letters as numbers', '/v1/%63hat/completions'],
  ['with a detour', '/v1/models/../chat/completions'],
] as const) {
  test(`the address of chat completions is understood, written ${how}`, async () => {
    const body = JSON.stringify({ messages: hello, ...withoutTools })
    const answer = await exchange(
      `POST ${target} HTTP/1.1\r\nhost: penny\r\nauthorization: Bearer ${account.apiKey}\r\nconnection: close\r\n` +
        `content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    )
    assert.match(answer, /^HTTP\/1\.1 200 OK\r\n/)
  })
}

test('a health check in HTTP/1.0, which names no host, is answered', async () => {
  assert.match(await exchange('GET /healthz HTTP/1.0\r\n\r\n'), /^HTTP\/1\.1 200 OK\r\n/)
})

test('CONNECT and a second Authorization header get an error that says what to do', async () => {
  const refused = async (bytes: string) => {
    const [head, body] = (await exchange(bytes)).split('\r\n\r\n')
    const { error } = JSON.parse(body!) as { error: { code: string; message: string; request_id: string } }
    assert.ok(head!.includes(`\r\nx-request-id: ${error.request_id}`))
    return [head!.split(' ')[1], error.code, error.message.split(/[:.] /)[0]]
  }
  assert.deepEqual(await refused('CONNECT example.com:443 HTTP/1.1\r\nhost: example.com:443\r\n\r\n'), [
    '405',
    'method_not_allowed',
    'Method CONNECT is not allowed',
  ])
  const keys = `authorization: Bearer ${account.apiKey}\r\nAuthorization: Bearer penny_other\r\n`
  for (const start of ['GET /api/requests', 'POST /v1/chat/completions']) {
    assert.deepEqual(await refused(`${start} HTTP/1.1\r\nhost: penny\r\n${keys}\r\n`), [
      '400',
      'invalid_value',
      'The request has more than one Authorization header',
    ])
  }
})

test('HEAD says how long the answer to GET is', async () => {
  for (const path of ['/v1/models', '/v1/models/gpt-5.6-terra', '/healthz']) {
    const whole = await fetch(`${service.origin}${path}`)
    const head = await fetch(`${service.origin}${path}`, { method: 'HEAD' })
    assert.equal(head.headers.get('content-length'), String((await whole.arrayBuffer()).byteLength), path)
  }
})

/** The response to these bytes, until the connection is closed. */
async function exchange(bytes: string): Promise<string> {
  const socket = connect(Number(new URL(service.origin).port), '127.0.0.1')
  socket.write(bytes)
  return Buffer.concat((await socket.toArray()) as Buffer[]).toString('utf8')
}

test('a page of any origin can read what a refusal says of itself: an SDK in it does not repeat what cannot be cured', async () => {
  const answer = await postChat(service, account.apiKey, { messages: hello, n: 2 })
  assert.equal(answer.headers.get('access-control-allow-origin'), '*')
  const readable = answer.headers.get('access-control-expose-headers')!.split(', ')
  const told = [...answer.headers.keys()].filter((name) => /^(x-(router|request|should)-|retry-after)/.test(name))
  assert.ok(told.includes('x-should-retry'))
  assert.deepEqual(
    told.filter((name) => !readable.includes(name)),
    [],
  )
})

test('a request for a ledger row without a key gets 401 and says to send one', async () => {
  const answer = await fetch(`${service.origin}/api/requests`)
  const { error } = (await answer.json()) as { error: { message: string } }
  assert.equal(answer.status, 401)
  assert.match(error.message, /Send "Authorization: Bearer penny_…", or sign in/)
})

test('an empty content type counts as missing, and JSON is read without one', async () => {
  const headers = { 'content-type': '' }
  assert.equal((await postChat(service, account.apiKey, { messages: hello }, { headers })).status, 200)
})

test('an absent model is the default one', async () => {
  const answer = await postChat(service, account.apiKey, { messages: hello })
  assert.equal(((await answer.json()) as { model: string }).model, 'gpt-5.6-terra')
})

test('a body that is too large and not JSON either is too large first', async () => {
  const answer = await postChat(service, account.apiKey, 'x'.repeat(200_000), {
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
  })
  assert.equal(answer.status, 413)
})

test('unsupported routes are 404 with an explanation; wrong methods are 405', async () => {
  for (const path of ['embeddings', 'completions', 'responses']) {
    const answer = await fetch(`${service.baseUrl}/${path}`, { method: 'POST', body: '{}' })
    const { error } = (await answer.json()) as { error: { code: string; message: string } }
    assert.deepEqual([answer.status, error.code], [404, 'unknown_url'])
    assert.match(error.message, /not supported/)
  }
  const wrong = await fetch(`${service.baseUrl}/chat/completions`)
  assert.deepEqual([wrong.status, wrong.headers.get('allow')], [405, 'POST'])
})

test('an absent, malformed, unknown, expired or revoked key is a 401 that says which', async () => {
  const expired = await service.openAccount('1', { expiresAt: new Date(Date.now() - 1_000) })
  const revoked = await service.openAccount('1')
  await revokeKey(service.database, revoked.keyId)
  const typo = account.apiKey.replace(/.$/, (last) => (last === 'a' ? 'b' : 'a'))
  const cases = [
    [undefined, 'invalid_api_key'],
    ['Basic abc', 'invalid_api_key'],
    [`Bearer ${typo}`, 'invalid_api_key'],
    [`Bearer ${createApiKey()}`, 'invalid_api_key'],
    ["Bearer ' or 1=1 --", 'invalid_api_key'],
    [`Bearer ${expired.apiKey}`, 'api_key_expired'],
    [`Bearer ${revoked.apiKey}`, 'api_key_revoked'],
  ] as const
  for (const [authorization, code] of cases) {
    const answer = await fetch(`${service.baseUrl}/chat/completions`, {
      method: 'POST',
      body: JSON.stringify({ messages: hello }),
      headers: { 'content-type': 'application/json', ...(authorization && { authorization }) },
    })
    const { error } = (await answer.json()) as { error: { code: string } }
    assert.deepEqual([answer.status, error.code], [401, code])
    assert.match(answer.headers.get('www-authenticate')!, /^Bearer/)
  }
})

test('another account’s request is as absent as one that never was', async () => {
  const stranger = await service.openAccount('1')
  const id = (await postChat(service, account.apiKey, { messages: hello })).headers.get('x-router-request-id')
  for (const wanted of [id, `req_${'0'.repeat(32)}`, 'req_1', '%27']) {
    const answer = await fetch(`${service.origin}/api/requests/${wanted}`, {
      headers: { authorization: `Bearer ${stranger.apiKey}` },
    })
    assert.equal(answer.status, 404)
  }
})

test('the model list is public, a bad key is ignored there, and one model can be asked for', async () => {
  const list = await fetch(`${service.baseUrl}/models`, { headers: { authorization: 'Bearer nonsense' } })
  const { data } = (await list.json()) as {
    data: {
      id: string
      pricing: { prompt: string; completion: string; web_search?: string }
    }[]
  }
  assert.equal(data.length, 5)
  assert.deepEqual(data[0]!.pricing.prompt, '0.000005')
  // Nothing is searched here, so searching has no price.
  assert.equal(data[0]!.pricing.web_search, undefined)
  assert.equal((await fetch(`${service.baseUrl}/models/gpt-6-astra`)).status, 200)
  assert.equal((await fetch(`${service.baseUrl}/models/gpt-2`)).status, 404)
})

test('a client that leaves while it uploads holds nothing and breaks nothing', async () => {
  const { hostname, port } = new URL(service.origin)
  await new Promise<void>((resolve) => {
    const upload = request({
      hostname,
      port,
      method: 'POST',
      path: '/v1/chat/completions',
      headers: {
        authorization: `Bearer ${account.apiKey}`,
        'content-type': 'application/json',
        'content-length': '500',
      },
    })
    upload.on('error', () => resolve())
    upload.write('{"messages"', () => upload.destroy(new Error('gone')))
  })
  assert.equal((await postChat(service, account.apiKey, { messages: hello })).status, 200)
})

test('browsers may call /v1 from any origin, without credentials', async () => {
  const preflight = await fetch(`${service.baseUrl}/chat/completions`, {
    method: 'OPTIONS',
    headers: {
      origin: 'https://example.com',
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'authorization,content-type',
    },
  })
  assert.equal(preflight.status, 204)
  assert.equal(preflight.headers.get('access-control-allow-origin'), '*')
  assert.equal(preflight.headers.get('access-control-allow-credentials'), null)
})

test('the page that an error points at explains its code', async () => {
  const { error } = (await (await postChat(service, account.apiKey, {})).json()) as { error: { doc_url: string } }
  const page = await (await fetch(error.doc_url)).text()
  assert.match(page, /id="missing_required_parameter"/)
})

test('every answer has nosniff, and plain http sends no HSTS header', async () => {
  const paths = [
    '/v1/models',
    '/v1/models/none',
    '/healthz',
    '/api/auth/session',
    '/api/requests',
    '/metrics',
    '/none',
    '/',
  ]
  const asked = paths.map((path) => fetch(`${service.origin}${path}`))
  const sent = [{ messages: hello }, { messages: hello, stream: true }, {}].map((body) =>
    postChat(service, account.apiKey, body),
  )
  for (const answer of await Promise.all([...asked, ...sent])) {
    await answer.arrayBuffer()
    assert.equal(answer.headers.get('x-content-type-options'), 'nosniff', `${answer.url} ${answer.status}`)
    assert.equal(answer.headers.get('strict-transport-security'), null)
  }
})

test('responses over https have Strict-Transport-Security', async (t) => {
  const port = await freePort()
  const environment = { PORT: String(port), PUBLIC_URL: 'https://router.example' }
  const secure = await startTestService({ besideOf: service, environment })
  atEnd(t, () => secure.stop())
  for (const path of ['/v1/models', '/api/requests', '/healthz', '/none']) {
    const answer = await fetch(`http://127.0.0.1:${port}${path}`)
    assert.equal(answer.headers.get('strict-transport-security'), 'max-age=31536000; includeSubDomains', path)
  }
})

/** Below the range that the system assigns to connections: a port of that range could be taken before the service listens on it. */
async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(20_000, 30_000)
    const server = createServer().listen(port, '127.0.0.1')
    const isFree = await once(server, 'listening').then(
      () => true,
      () => false,
    )
    if (!isFree) continue
    server.close()
    await once(server, 'close')
    return port
  }
}

test('health always succeeds; readiness depends on the database', async () => {
  assert.equal((await fetch(`${service.origin}/healthz`)).status, 200)
  const { parts, ...rest } = (await (await fetch(`${service.origin}/readyz`)).json()) as { parts: object }
  assert.deepEqual(rest, { ok: true, problems: {} })
  assert.deepEqual(Object.keys(parts), ['model', 'search'])
})

/** Sent as it is written: fetch would tidy the path up. */
async function statusOf(method: string, path: string): Promise<number> {
  const headers = { authorization: `Bearer ${account.apiKey}`, 'content-type': 'application/json' }
  return new Promise((resolve, reject) => {
    const outgoing = request(service.origin, { method, path, headers }, (answer) => {
      answer.resume().on('end', () => resolve(answer.statusCode!))
    })
    outgoing.on('error', reject).end(method === 'POST' ? JSON.stringify({ messages: hello }) : undefined)
  })
}

test('repeated and trailing slashes are the same path', async () => {
  for (const path of [
    '/v1/chat/completions/',
    '/v1//chat/completions',
    '//v1/chat/completions',
    '/v1/chat//completions//?x=//',
    `${service.origin}//v1/chat/completions/`,
  ]) {
    assert.equal(await statusOf('POST', path), 200, path)
  }
  const answer = await postChat(service, account.apiKey, { messages: hello })
  const id = answer.headers.get('x-router-request-id')
  for (const path of [
    '/v1/models/',
    '//v1//models?',
    '/v1/models/gpt-5.6-terra/',
    `/api//requests/${id}/`,
    '/',
    '//',
    '/healthz/',
  ]) {
    assert.equal(await statusOf('GET', path), 200, path)
  }
  assert.equal(await statusOf('POST', '/v1/quote/'), 200)
  assert.equal(await statusOf('GET', '/v1/chat/completions/'), 405)
  assert.equal(await statusOf('GET', '/v1/models/nobody/'), 404)
})

test('an id that is malformed belongs to no request', async () => {
  const headers = { authorization: `Bearer ${account.apiKey}` }
  for (const id of ['req_', '%00', '%ud800', 'x'.repeat(200), 'req_0198f0c2a1b2700080d0a1b2c3d4e5f6']) {
    const answer = await fetch(`${service.origin}/api/requests/${id}`, { headers })
    const { error } = (await answer.json()) as { error: { code: string } }
    assert.deepEqual([id, answer.status, error.code], [id, 404, 'request_not_found'])
  }
})

test('a page of another site can read with a key what its request has cost, and nothing with a session', async () => {
  const answer = await postChat(service, account.apiKey, { messages: hello })
  const url = `${service.origin}/api/requests/${answer.headers.get('x-router-request-id')}`
  const origin = 'https://app.example'
  const preflight = await fetch(url, {
    method: 'OPTIONS',
    headers: { origin, 'access-control-request-method': 'GET', 'access-control-request-headers': 'authorization' },
  })
  assert.equal(preflight.status, 204)
  const allowed = (response: Response, name: string) => response.headers.get(`access-control-${name}`)
  assert.equal(allowed(preflight, 'allow-origin'), '*')
  assert.equal(allowed(preflight, 'allow-methods'), 'GET, OPTIONS')
  assert.equal(allowed(preflight, 'allow-headers'), 'authorization')

  const read = await fetch(url, { headers: { origin, authorization: `Bearer ${account.apiKey}` } })
  assert.equal(((await read.json()) as { status: string }).status, 'succeeded')
  const stranger = await fetch(url, { headers: { origin, authorization: 'Bearer penny_nobody' } })
  assert.equal(stranger.status, 401)
  for (const response of [preflight, read, stranger]) {
    assert.equal(allowed(response, 'allow-origin'), '*')
    assert.equal(allowed(response, 'allow-credentials'), null)
  }

  const client = await signInNew(service, '1')
  const bySession = await client.send('GET', new URL(url).pathname, undefined, { origin })
  assert.equal(allowed(bySession, 'allow-origin'), null)
  for (const path of ['/api/requests', '/api/requests/totals', '/api/balance']) {
    const other = await fetch(`${service.origin}${path}`, { method: 'OPTIONS', headers: { origin } })
    assert.equal(allowed(other, 'allow-origin'), null, path)
  }
})
