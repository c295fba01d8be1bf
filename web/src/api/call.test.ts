import assert from 'node:assert/strict'
import { test } from 'node:test'
import { atEnd } from '../../../test/support/at-end.ts'
import { call, UnreachableError } from './call.ts'

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
  const calls = [call('getBalance'), call('getBalance', {}, { signal: cancelled.signal })] as const
  cancelled.abort()
  await assert.rejects(calls[1], { name: 'AbortError' })
  deadline.abort(new DOMException('Too late', 'TimeoutError'))
  await assert.rejects(calls[0], UnreachableError)
})
