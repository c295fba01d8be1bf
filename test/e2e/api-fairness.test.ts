import assert from 'node:assert/strict'
import { test } from 'node:test'
import { answers, completed, created, text } from '../support/scripted-upstream.ts'
import { postChat } from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'

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
test('a chat request is served while every connection of the dashboard is occupied', async () => {
  const { service, upstream } = suite
  const honest = await service.openAccount('1')
  const greedy = await Promise.all(Array.from({ length: 6 }, () => service.openAccount('1')))
  upstream.answer = answers(created, text('Hi'), completed())
  const lock = Promise.withResolvers<void>()
  const isLocked = Promise.withResolvers<void>()
  // Lists wait for this lock: a slow query that needs no large table.
  const locking = service.database.transaction(async (connection) => {
    await connection.execute('lock table tool_calls in access exclusive mode')
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
  } finally {
    lock.resolve()
    await locking
    await Promise.all(waiting)
  }
})
