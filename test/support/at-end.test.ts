import assert from 'node:assert/strict'
import { test } from 'node:test'
import { atEnd } from './at-end.ts'

test('cleanups run in reverse order, and one failure leaves nothing behind', async () => {
  const hooks: (() => unknown)[] = []
  const t = { after: (hook: () => unknown) => void hooks.push(hook) }
  const undone: string[] = []
  atEnd(t, () => undone.push('folder'))
  atEnd(t, () => Promise.reject(new Error('the server does not stop')))
  atEnd(t, () => undone.push('client'))
  assert.equal(hooks.length, 1)
  await assert.rejects(async () => hooks[0]!(), /the server does not stop/)
  assert.deepEqual(undone, ['client', 'folder'])
})
