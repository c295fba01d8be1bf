import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { DashboardClient, signInNew } from '../../test/support/dashboard-client.ts'
import { serviceSuite } from '../../test/support/suites.ts'
import type { Contract } from '../openapi/contract.ts'
import { contracts } from '../openapi/contracts/all.ts'

// Over the whole table of routes: these tests apply to new routes automatically.

const suite = serviceSuite({ TRUST_PROXY: '1' })
const requestId = `req_0198f0c2a1b270008${'0'.repeat(15)}`

function pathOf({ path }: Contract): string {
  return path
    .replace('/api/requests/{id}', `/api/requests/${requestId}`)
    .replace('/api/receipts/{id}', `/api/receipts/${requestId}`)
    .replace('{address}', `0x${'1'.repeat(40)}`)
    .replace('{id}', path.includes('models') ? 'gpt-5.6-terra' : randomUUID())
}

const changing = contracts.filter(({ method }) => method !== 'GET')
const ofSession = contracts.filter(({ access }) => access === 'session' || access === 'sandbox')

test('an API key opens nothing that is a session’s', async () => {
  const { apiKey } = await suite.service.openAccount('1')
  for (const contract of ofSession) {
    const client = new DashboardClient(suite.service)
    const body = contract.method === 'GET' ? undefined : {}
    const refusal = await client.refusal(contract.method, pathOf(contract), body, { authorization: `Bearer ${apiKey}` })
    assert.deepEqual(refusal, [401, 'session_required'], contract.operation)
  }
})

test('a session opens nothing that is a key’s', async () => {
  const client = await signInNew(suite.service, '1')
  for (const contract of contracts.filter(({ access }) => access === 'key')) {
    const body = contract.method === 'GET' ? undefined : { messages: [{ role: 'user', content: 'hi' }] }
    assert.deepEqual(
      await client.refusal(contract.method, pathOf(contract), body),
      [401, 'invalid_api_key'],
      contract.path,
    )
  }
})

test('without either, only public routes answer', async () => {
  for (const contract of contracts.filter(({ access }) => access !== 'public')) {
    const client = new DashboardClient(suite.service)
    const answer = await client.send(contract.method, pathOf(contract), contract.method === 'GET' ? undefined : {})
    // What is an operator's is not there at all, and wallets cannot pay on a machine without a gateway.
    const statuses: Readonly<Record<string, number>> = { operator: 404, wallet: 503 }
    assert.equal(answer.status, statuses[contract.access] ?? 401, contract.operation)
    assert.ok(answer.headers.get('x-router-request-id'))
  }
})

test('no route that changes something takes it from another site', async () => {
  const client = await signInNew(suite.service, '1')
  // Wallets sign what they send, and bring no cookie that another site could use.
  const withCookie = changing.filter(({ access, path }) => access !== 'key' && !path.startsWith('/x402/'))
  for (const contract of withCookie) {
    const headers = { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' }
    const refusal = await client.refusal(contract.method, pathOf(contract), {}, headers)
    assert.deepEqual(refusal, [403, 'cross_site_request'], contract.operation)
  }
})

test('an unknown method of a path gets 405 with the allowed methods', async () => {
  for (const path of new Set(contracts.filter(({ access }) => access !== 'operator').map(pathOf))) {
    const answer = await fetch(`${suite.service.origin}${path}`, { method: 'LOCK' })
    assert.equal(answer.status, 405, path)
    assert.ok(answer.headers.get('allow'), path)
  }
})

test('no key is created below /v1', () => {
  const below = contracts.filter(({ path }) => path.startsWith('/v1'))
  assert.deepEqual(
    below.map(({ method, path }) => `${method} ${path}`),
    ['POST /v1/chat/completions', 'POST /v1/quote', 'GET /v1/models', 'GET /v1/models/{id}'],
  )
})

test('garbage in any place is refused cleanly, never with a 500', async () => {
  const garbage = [
    '\0',
    '%00',
    "'; drop table accounts; --",
    '9'.repeat(300),
    '[]',
    '{}',
    'null',
    '\ud800',
    '-1',
    '1e400',
  ]
  for (const contract of contracts.filter(({ operation }) => operation !== 'signOut')) {
    // A new caller for each, whose rate limit is not used up.
    const client = await signInNew(suite.service, '1')
    for (const text of garbage) {
      const body = Object.fromEntries(bodyNames(contract).map((name) => [name, text]))
      const parameters = new URLSearchParams(Object.keys(contract.query?.shape ?? {}).map((name) => [name, text]))
      const path = contract.path.replace(/\{\w+\}/g, encodeURIComponent(text.toWellFormed()))
      const answer = await client.send(
        contract.method,
        `${path}?${parameters}`,
        contract.method === 'GET' ? undefined : body,
      )
      const isClean = (answer.status < 500 && answer.status !== 429) || answer.status === 503
      assert.ok(isClean, `${contract.operation} ${JSON.stringify(text)} ${answer.status}`)
      if (contract.operation === 'openStream') await answer.body?.cancel()
      else await answer.arrayBuffer()
    }
  }
})

test('the same garbage one parameter at a time does no harm either', async () => {
  for (const contract of contracts.filter(({ query }) => query !== undefined)) {
    const client = await signInNew(suite.service, '1')
    for (const name of Object.keys(contract.query!.shape)) {
      for (const text of ['\0', '9'.repeat(19), 'x', '9999-12-31T23:59:59.999Z', '0000-01-01T00:00:00Z']) {
        const answer = await client.send('GET', `${pathOf(contract)}?${new URLSearchParams({ [name]: text })}`)
        const isClean = (answer.status < 500 && answer.status !== 429) || answer.status === 503
        assert.ok(isClean, `${contract.operation} ${name}=${text}: ${answer.status} ${await answer.text()}`)
      }
    }
  }
})

function bodyNames({ body }: Contract): string[] {
  return Object.keys((body as { shape?: object } | undefined)?.shape ?? {})
}
