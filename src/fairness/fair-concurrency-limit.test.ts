import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FairConcurrencyLimit } from './fair-concurrency-limit.ts'

const never = new AbortController().signal

test('accounts are served in turn, and work waits while the maximum runs', async () => {
  const limit = new FairConcurrencyLimit(1, { what: 'places', capacity: 10, floor: 5 })
  const order: string[] = []
  const work = async (account: string) => {
    using _turn = await limit.enter(account, never)
    order.push(account)
    await new Promise(setImmediate)
  }
  await Promise.all(['busy', 'busy', 'busy', 'other'].map(work))
  assert.deepEqual(order, ['busy', 'busy', 'other', 'busy'])
})

test('an account without a free place is refused, and a place is free again when its call is cancelled', async () => {
  const limit = new FairConcurrencyLimit(1, { what: 'places', capacity: 2, floor: 1 })
  const running = await limit.enter('a', never)
  const cancel = new AbortController()
  const waiting = limit.enter('a', cancel.signal)
  assert.equal(await limit.enter('a', never), undefined)
  cancel.abort(new Error('cancelled'))
  await assert.rejects(waiting, /cancelled/)
  const next = limit.enter('a', never)
  running![Symbol.dispose]()
  assert.ok(await next)
})
