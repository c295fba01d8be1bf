import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Breaker } from './breaker.ts'

function breakerAt(isProbed = false) {
  const clock = { nowMs: 0, opened: [] as number[] }
  const breaker = new Breaker({ now: () => clock.nowMs, isProbed, onOpen: (openMs) => clock.opened.push(openMs) })
  return { clock, breaker }
}

let accounts = 0
const another = () => `account ${(accounts += 1)}`

test('three failures in a row open it; fewer, or with a success between them, do not', () => {
  const { breaker } = breakerAt()
  for (const isGood of [false, false, true, false, false])
    isGood ? breaker.succeeded(another()) : breaker.failed(another())
  assert.equal(breaker.state, 'closed')
  breaker.failed(another())
  assert.equal(breaker.state, 'open')
  assert.equal(breaker.admits(another()), false)
})

test('a provider that fails every second time is out after ten failures', () => {
  const { breaker } = breakerAt()
  let failures = 0
  while (breaker.state === 'closed' && failures < 50) {
    breaker.succeeded(another())
    breaker.failed(another())
    failures += 1
  }
  assert.equal(failures, 10)
})

test('after its time one request is the trial; a success closes it, a failure doubles the time', () => {
  const { breaker, clock } = breakerAt()
  for (let count = 0; count < 3; count += 1) breaker.failed(another())
  clock.nowMs += 1_000
  assert.equal(breaker.state, 'half-open')
  breaker.begin()
  assert.equal(breaker.admits(another()), false, 'one trial at a time')
  breaker.failed(another())
  assert.deepEqual([breaker.state, clock.opened], ['open', [1_000, 2_000]])
  clock.nowMs += 2_000
  breaker.begin()
  breaker.succeeded(another())
  assert.deepEqual([breaker.state, breaker.admits(another())], ['closed', true])
})

test('the time that it is open never passes half a minute', () => {
  const { breaker, clock } = breakerAt()
  for (let count = 0; count < 3; count += 1) breaker.failed(another())
  for (let count = 0; count < 20; count += 1) {
    clock.nowMs += 30_000
    assert.equal(breaker.state, 'half-open')
    breaker.failed(another())
  }
  assert.equal(Math.max(...clock.opened), 30_000)
})

test('a trial whose client leaves, or that never ends, does not keep a provider out', () => {
  const { breaker, clock } = breakerAt()
  for (let count = 0; count < 3; count += 1) breaker.failed(another())
  clock.nowMs += 1_000
  breaker.begin()
  breaker.released()
  assert.equal(breaker.admits(another()), true)
  breaker.begin()
  clock.nowMs += 30_000
  assert.equal(breaker.admits(another()), true)
})

test('a Retry-After of the provider is respected, and a shorter one does not shorten it', () => {
  const { breaker, clock } = breakerAt()
  breaker.open(20_000)
  breaker.open(1_000)
  clock.nowMs += 19_999
  assert.equal(breaker.state, 'open')
  clock.nowMs += 1
  assert.equal(breaker.state, 'half-open')
})

test('answers that began before it opened do not change it', () => {
  const { breaker, clock } = breakerAt()
  for (let count = 0; count < 3; count += 1) breaker.failed(another())
  for (let count = 0; count < 100; count += 1) breaker.failed(another())
  breaker.succeeded(another())
  assert.deepEqual([breaker.state, clock.opened], ['open', [1_000]])
})

test('with a probe it stays open until the probe succeeds', () => {
  const { breaker, clock } = breakerAt(true)
  for (let count = 0; count < 3; count += 1) breaker.failed(another())
  clock.nowMs += 60_000
  assert.equal(breaker.state, 'open')
  breaker.probed(false)
  assert.deepEqual([breaker.state, clock.opened], ['open', [1_000, 2_000]])
  breaker.probed(true)
  assert.equal(breaker.state, 'half-open')
})

test('one customer’s failures open it for all only while no other has good answers, and another’s is the trial', () => {
  const { breaker, clock } = breakerAt()
  for (let second = 0; second < 60; second += 1) {
    clock.nowMs += 1_000
    breaker.succeeded('honest')
    for (let count = 0; count < 5; count += 1) breaker.failed('hostile')
  }
  assert.equal(breaker.state, 'closed', 'half of the last twenty, and five in a row')
  clock.nowMs += 60_000
  breaker.failed('hostile')
  assert.equal(breaker.state, 'open', 'no other account says that the provider works')
  clock.nowMs += 1_000
  assert.deepEqual([breaker.state, breaker.admits('hostile'), breaker.admits('honest')], ['half-open', false, true])
  breaker.begin()
  breaker.failed('hostile')
  assert.deepEqual([breaker.state, breaker.admits('honest')], ['half-open', true], 'it was no trial')
  clock.nowMs += 30_000
  assert.equal(breaker.admits('hostile'), true, 'there may be no other customer')
  breaker.begin()
  breaker.succeeded('hostile')
  assert.equal(breaker.state, 'closed')
})

test('a provider that breaks while its customers had good answers is out after three of them failed', () => {
  const { breaker } = breakerAt()
  for (const account of ['one', 'two', 'three', 'four']) breaker.succeeded(account)
  for (const account of ['one', 'two', 'one', 'two']) breaker.failed(account)
  assert.equal(breaker.state, 'closed')
  breaker.failed('three')
  assert.equal(breaker.state, 'open')
})
