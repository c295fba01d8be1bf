import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as turnOfTheLoop } from 'node:timers/promises'
import { FairConcurrencyLimit } from './fair-concurrency-limit.ts'

const never = new AbortController().signal

test('accounts are served in turn, and work waits while the maximum runs', async () => {
  const limit = new FairConcurrencyLimit({ concurrentMax: 1, accountConcurrentMin: 1, waitingMax: 10 })
  const order: string[] = []
  const work = async (account: string) => {
    using _turn = await limit.enter(account, never)
    order.push(account)
    await turnOfTheLoop()
  }
  await Promise.all(['busy', 'busy', 'busy', 'other'].map(work))
  assert.deepEqual(order, ['busy', 'busy', 'other', 'busy'])
})

test('an account runs its share at once, others pass its waiting work, and that runs when its own ends', async () => {
  const limit = new FairConcurrencyLimit({ concurrentMax: 8, accountConcurrentMin: 1, waitingMax: 100 })
  const begun: string[] = []
  const enter = async (account: string) => {
    const turn = await limit.enter(account, never)
    begun.push(account)
    return turn!
  }
  const greedy = Array.from({ length: 4 }, () => enter('greedy'))
  const [first] = await Promise.all(greedy.slice(0, 2))
  const honest = await enter('honest')
  await turnOfTheLoop()
  assert.deepEqual(begun, ['greedy', 'greedy', 'honest'])
  honest[Symbol.dispose]()
  await turnOfTheLoop()
  assert.equal(begun.length, 3)
  first![Symbol.dispose]()
  await greedy[2]
  await turnOfTheLoop()
  assert.deepEqual(begun.slice(3), ['greedy'])
})

test('an account without a place to wait is refused, and a place is free again when its call is cancelled', async () => {
  const limit = new FairConcurrencyLimit({ concurrentMax: 1, accountConcurrentMin: 1, waitingMax: 1 })
  const running = await limit.enter('a', never)
  const cancel = new AbortController()
  const waiting = limit.enter('a', cancel.signal)
  assert.equal(await limit.enter('a', never), undefined)
  cancel.abort(new Error('cancelled'))
  assert.equal(await waiting, undefined)
  assert.equal(await limit.enter('a', cancel.signal), undefined)
  const next = limit.enter('a', never)
  running![Symbol.dispose]()
  assert.ok(await next)
})
