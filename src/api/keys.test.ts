import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type DashboardClient, type Json, signInNew } from '../../test/support/dashboard-client.ts'
import { completed, created, text } from '../../test/support/scripted-upstream.ts'
import { postChat } from '../../test/support/service.ts'
import { serviceSuite } from '../../test/support/suites.ts'
import { until } from '../../test/support/until.ts'

const question = [{ role: 'user', content: 'What is a penny?' }]
let client: DashboardClient
const suite = serviceSuite({ TRUST_PROXY: '1' }, async (service) => {
  client = await signInNew(service, '10')
  suite.upstream.answer = (exchange) => {
    exchange.send(created, text('A coin.'), completed({ input_tokens: 11, output_tokens: 7, total_tokens: 18 }))
    exchange.end()
  }
})

test('a key that would have expired before it was made is not made', async () => {
  const stale = { name: 'stale', expires_at: '2020-01-01T00:00:00Z' }
  assert.deepEqual(await client.refusal('POST', '/api/keys', stale), [400, 'invalid_value'])
})

test('a name with half of a surrogate pair is refused: no database can keep it', async () => {
  const half = '\ud83d'
  const response = await client.send('POST', '/api/keys', { name: `half ${half}` })
  const { error } = (await response.json()) as Json
  assert.deepEqual([response.status, error.code, error.param], [400, 'invalid_value', 'name'])
  assert.match(error.message, /must be well-formed Unicode, without a lone surrogate/)
  assert.equal((await client.post('/api/keys', { name: `whole ${half}\ude00` })).name, 'whole 😀')
})

test('a key’s limit is a number or a string, and never nothing', async () => {
  for (const [limit, kept] of [
    [5, '5'],
    [0.000001, '0.000001'],
    ['2.50', '2.5'],
  ] as const) {
    const made = await client.post('/api/keys', { name: 'limited', limit })
    assert.equal(made.limit, kept)
    assert.equal((await client.patch(`/api/keys/${made.id}`, { limit: 7 })).limit, '7')
    for (const nothing of [0, '0', '0.000000']) {
      const refused = await client.send('PATCH', `/api/keys/${made.id}`, { limit: nothing })
      const { error } = (await refused.json()) as { error: { param: string; message: string } }
      assert.deepEqual([refused.status, error.param], [400, 'limit'])
      assert.match(error.message, /must be above 0\. To stop a key from spending/)
    }
  }
  for (const limit of ['0', 0, -1, 1e-7, 1e21, 0.1 + 0.2, '1e3', '', true, {}]) {
    assert.deepEqual(await client.refusal('POST', '/api/keys', { name: 'x', limit }), [400, 'invalid_value'])
  }
})

test('a key’s secret is in the answer that made it and in no other', async () => {
  const made = await client.post('/api/keys', { name: 'once', limit: '1.50', expires_at: '2030-01-01T00:00:00Z' })
  client.bodies.length = 0
  for (const path of [
    '/api/keys',
    `/api/keys/${made.id}`,
    '/api/session',
    '/api/export',
    '/api/requests',
    '/api/overview',
  ]) {
    await client.get(path)
  }
  await client.patch(`/api/keys/${made.id}`, { name: 'renamed', limit: null })
  assert.ok(client.bodies.every((body) => !body.includes(made.secret)))
  assert.ok(client.bodies.some((body) => body.includes(made.hint)))
})

test('a key can be changed, disabled, enabled, rotated with an overlap, and revoked for good', async () => {
  const made = await client.post('/api/keys', { name: 'worker', limit: '1' })
  const status = async (secret: string) => (await postChat(suite.service, secret, { messages: question })).status
  assert.equal(await status(made.secret), 200)
  const disabled = await client.patch(`/api/keys/${made.id}`, { disabled: true })
  assert.equal(disabled.status, 'disabled')
  await until(async () => (await status(made.secret)) === 401)
  assert.equal((await client.patch(`/api/keys/${made.id}`, { disabled: false })).status, 'active')
  assert.equal(await status(made.secret), 200)

  const rotated = await client.post(`/api/keys/${made.id}/rotate`, { overlap_seconds: 3600 })
  assert.equal(rotated.id, made.id)
  assert.notEqual(rotated.secret, made.secret)
  assert.ok(BigInt(rotated.spent_atomic) > 0n, 'what was spent before counts on')
  assert.deepEqual(
    rotated.old_secrets.map(({ hint }: Json) => hint),
    [made.hint],
  )
  assert.deepEqual([await status(made.secret), await status(rotated.secret)], [200, 200])
  const again = await client.post(`/api/keys/${made.id}/rotate`, { overlap_seconds: 0 })
  assert.deepEqual([await status(rotated.secret), await status(made.secret)], [401, 401])
  assert.equal(await status(again.secret), 200)

  assert.equal((await client.delete(`/api/keys/${made.id}`)).status, 'revoked')
  await until(async () => (await status(again.secret)) === 401)
  assert.deepEqual(await client.refusal('PATCH', `/api/keys/${made.id}`, { disabled: false }), [400, 'invalid_value'])
  assert.deepEqual(await client.refusal('POST', `/api/keys/${made.id}/rotate`, {}), [400, 'invalid_value'])
})

test('a key’s page says why its requests were refused', async () => {
  const made = await client.post('/api/keys', { name: 'small', limit: '0.000001' })
  for (let index = 0; index < 3; index += 1)
    await (await postChat(suite.service, made.secret, { messages: question })).arrayBuffer()
  await until(async () => (await client.get(`/api/keys/${made.id}`)).refusals[0]?.count === 3)
  const page = await client.get(`/api/keys/${made.id}`)
  assert.equal(page.refusals[0].code, 'key_limit_exceeded')
  assert.equal(page.recent.length, 3)
  assert.equal(page.spent_atomic, '0')
})
