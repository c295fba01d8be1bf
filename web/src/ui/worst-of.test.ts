import assert from 'node:assert/strict'
import { test } from 'node:test'
import { worstOf } from './worst-of.ts'

type Read = { readonly data: string | undefined; readonly error: Error | null }

const read: Read = { data: 'rows', error: null }
const waiting: Read = { data: undefined, error: null }
const failed: Read = { data: undefined, error: new Error('no') }
const stale: Read = { data: 'rows', error: new Error('no') }

test('one failed read of several is seen, whichever it is', () => {
  assert.equal(worstOf(read, waiting, failed), failed)
  assert.equal(worstOf(failed, stale, read), failed)
  assert.equal(worstOf(read, stale, waiting), waiting)
  assert.equal(worstOf(read, stale), stale)
  assert.equal(worstOf(read, { ...read }), read)
})
