import assert from 'node:assert/strict'
import { test } from 'node:test'
import { atEnd } from '../../../test/support/at-end.ts'
import { call, isShown, showAccount, UnreachableError } from './call.ts'
import type { Session } from './shapes.ts'

test('a call without an answer ends as unreachable; one that the page cancels ends as cancelled', async (context) => {
  Object.assign(globalThis, { document: { documentElement: { dataset: {} } } })
  atEnd(context, () => Reflect.deleteProperty(globalThis, 'document'))
  const deadline = new AbortController()
  context.mock.method(AbortSignal, 'timeout', () => deadline.signal)
  context.mock.method(globalThis, 'fetch', (_: string, { signal }: RequestInit) => {
    const { promise, reject } = Promise.withResolvers<Response>()
    signal!.addEventListener('abort', () => reject(signal!.reason))
    return promise
  })
  const cancelled = new AbortController()
  const calls = [call('GET /api/balance'), call('GET /api/balance', {}, { signal: cancelled.signal })] as const
  cancelled.abort()
  await assert.rejects(calls[1], { name: 'AbortError' })
  deadline.abort(new DOMException('Too late', 'TimeoutError'))
  await assert.rejects(calls[0], UnreachableError)
})

test('every change names the account and the person that the page shows', async (context) => {
  Object.assign(globalThis, { document: { documentElement: { dataset: {} } } })
  atEnd(context, () => Reflect.deleteProperty(globalThis, 'document'))
  const sent: unknown[] = []
  context.mock.method(globalThis, 'fetch', async (_: string, { headers }: RequestInit) => {
    const { 'x-router-account': account, 'x-router-person': person } = headers as Record<string, string>
    sent.push([account, person])
    return Response.json({})
  })
  const session = { signed_in: true, account: { id: 'account' }, person: { id: 'person' } } as Session
  showAccount(session)
  await call('PATCH /api/person', { body: { name: 'New' } })
  await call('GET /api/balance')
  showAccount(undefined)
  await call('PATCH /api/person', { body: { name: 'New' } })
  assert.deepEqual(sent, [
    ['account', 'person'],
    [undefined, undefined],
    [undefined, undefined],
  ])
  showAccount(session)
  assert.ok(isShown(session))
  assert.ok(!isShown({ ...session, person: { ...session.person!, id: 'other' } }))
})

test('an answer that breaks off, and a page of something in between, are no answer', async (context) => {
  Object.assign(globalThis, { document: { documentElement: { dataset: {} } } })
  atEnd(context, () => Reflect.deleteProperty(globalThis, 'document'))
  for (const body of ['{"available_ato', '<html>Sign in to the hotel network</html>']) {
    context.mock.method(globalThis, 'fetch', async () => new Response(body))
    await assert.rejects(call('GET /api/balance'), UnreachableError)
  }
})
