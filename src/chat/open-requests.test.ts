import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parse } from '../money/usdc.ts'
import { OpenRequests } from './open-requests.ts'

/** A clock that the test moves, and requests of one account. */
function start() {
  let nowMs = 0
  const open = new OpenRequests(() => nowMs)
  return {
    pass: (ms: number) => {
      nowMs += ms
    },
    begin: (quote: string, model = 'm', account = 'a') => open.begin(account, { quote: parse(quote), model }),
    wait: (amount: string, account = 'a') => open.roomInMs(account, parse(amount)),
  }
}

test('the wait is until as much is free as is missing, by how long requests of the model take', () => {
  const { begin, pass, wait } = start()
  const first = begin('0.8')
  pass(12_000)
  first[Symbol.dispose]()
  begin('0.4')
  pass(3_000)
  begin('0.4')
  assert.equal(wait('0.2'), 9_000, 'the older one is enough')
  assert.equal(wait('0.4'), 9_000)
  assert.equal(wait('0.5'), 12_000, 'both must end')
})

test('a request that takes longer than others is waited for longer, within bounds', () => {
  const { begin, pass, wait } = start()
  begin('0.8')[Symbol.dispose]()
  begin('0.8')
  assert.equal(wait('0.8'), 1_000, 'never less than a second')
  pass(20_000)
  assert.equal(wait('0.8'), 10_000)
  pass(600_000)
  assert.equal(wait('0.8'), 30_000, 'nor more than 30')
})

test('where nothing is known, and for what other nodes serve, a few seconds are guessed', () => {
  const { begin, wait } = start()
  assert.equal(wait('0.8'), 5_000)
  begin('0.8', 'm', 'somebody else')
  assert.equal(wait('0.8'), 5_000)
  begin('0.1')
  assert.equal(wait('0.8'), 5_000)
})
