import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { OverloadedError } from '../errors.ts'
import { Shares, ShareUsedUpError } from './shares.ts'

function takeAll(shares: Shares, account: string): number {
  for (let taken = 0; ; taken += 1) {
    if (shares.refusal(account) !== undefined) return taken
    shares.acquire(account)
  }
}

test('one account gets a quarter, and several greedy ones leave room for others', () => {
  const shares = new Shares({ what: 'places', capacity: 10_000 })
  assert.equal(takeAll(shares, 'a'), 2_500)
  assert.throws(() => shares.acquire('a'), ShareUsedUpError)
  for (const account of ['b', 'c', 'd', 'e']) takeAll(shares, account)
  assert.ok(shares.used < 10_000 * 0.8, String(shares.used))
  shares.acquire('honest')
})

test('an account that has nothing gets a place until there is none', () => {
  const shares = new Shares({ what: 'places', capacity: 4 })
  for (const account of ['a', 'b', 'c', 'd']) shares.acquire(account)
  assert.throws(() => shares.acquire('e'), OverloadedError)
  shares.release('b')
  shares.acquire('e')
})

test('in a small pool an account gets the floor, and all of a pool that is smaller still', () => {
  const small = new Shares({ what: 'places', capacity: 60, floor: 16 })
  assert.equal(takeAll(small, 'a'), 16)
  const tiny = new Shares({ what: 'places', capacity: 5, floor: 16 })
  assert.equal(takeAll(tiny, 'a'), 5)
  assert.throws(() => tiny.acquire('a'), OverloadedError)
})

test('an account never gets more than its maximum', () => {
  const shares = new Shares({ what: 'places', capacity: 2_000, accountMax: 20 })
  assert.equal(takeAll(shares, 'a'), 20)
})

test('after any sequence of takes and releases the sum is right, and nothing is left at the end', () => {
  const steps = fc.array(fc.tuple(fc.constantFrom('a', 'b', 'c'), fc.integer({ min: 1, max: 40 })), { maxLength: 60 })
  fc.assert(
    fc.property(steps, (wishes) => {
      const shares = new Shares({ what: 'bytes', capacity: 100, floor: 10 })
      const taken = wishes.filter(([account, amount]) => {
        if (shares.refusal(account, amount) !== undefined) return false
        shares.acquire(account, amount)
        return true
      })
      assert.equal(
        shares.used,
        taken.reduce((sum, [, amount]) => sum + amount, 0),
      )
      assert.ok(shares.used <= 100)
      for (const [account, amount] of taken) shares.release(account, amount)
      assert.equal(shares.used, 0)
      assert.throws(() => shares.release('a'))
    }),
  )
})
