import assert from 'node:assert/strict'
import { request } from 'node:http'
import { after, before, test } from 'node:test'
import { signInNew } from '../support/dashboard-client.ts'
import { postChat, startTestService, type TestAccount, type TestService, withoutTools } from '../support/service.ts'

let service: TestService
let account: TestAccount
before(async () => {
  service = await startTestService()
  account = await service.openAccount('25')
})
after(() => service.stop())

const body = { messages: [{ role: 'user', content: 'Hello' }], max_tokens: 50, ...withoutTools }

/** Sent as it is written: fetch would tidy the path up. */
async function statusOf(method: string, path: string): Promise<number> {
  const headers = { authorization: `Bearer ${account.apiKey}`, 'content-type': 'application/json' }
  return new Promise((resolve, reject) => {
    const outgoing = request(service.origin, { method, path, headers }, (answer) => {
      answer.resume().on('end', () => resolve(answer.statusCode!))
    })
    outgoing.on('error', reject).end(method === 'POST' ? JSON.stringify(body) : undefined)
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
  const answer = await postChat(service, account.apiKey, body)
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
  const answer = await postChat(service, account.apiKey, body)
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
