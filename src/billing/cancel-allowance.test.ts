import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fromAtomic } from '../money/usdc.ts'
import { CancelAllowance, freeCancelCostMax, freeCancelsMax } from './cancel-allowance.ts'

const hourMs = 3_600_000

test('twenty cheap cancels an hour are free, for each account', () => {
  let now = 0
  const allowance = new CancelAllowance(() => now)
  const take = (account = 'a') => allowance.take(account, fromAtomic(11n))
  for (let cancel = 0; cancel < freeCancelsMax; cancel += 1) assert.ok(take())
  assert.deepEqual([take(), take('b')], [false, true])
  now = hourMs - 1
  assert.equal(take(), false)
  now = hourMs
  assert.ok(take())
})

test('expensive cancels are free until they add up to 0.10 USDC; the first is always free', () => {
  const allowance = new CancelAllowance(() => 0)
  const almost = fromAtomic(freeCancelCostMax - 1n)
  assert.deepEqual(
    [allowance.take('a', almost), allowance.take('a', fromAtomic(900_000n)), allowance.take('a', fromAtomic(1n))],
    [true, true, false],
  )
  assert.deepEqual([allowance.take('b', freeCancelCostMax), allowance.take('b', fromAtomic(0n))], [true, false])
})

test('the oldest of ten thousand accounts is forgotten first', () => {
  const allowance = new CancelAllowance(() => 0)
  const spend = (account: string) => allowance.take(account, freeCancelCostMax)
  assert.ok(spend('first') && spend('second'))
  for (let other = 0; other < 9_999; other += 1) spend(`other ${other}`)
  assert.deepEqual([spend('second'), spend('first')], [false, true])
})
