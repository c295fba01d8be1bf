import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Breaker } from './breaker.ts'

function breakerAt(isProbed = false) {
  const clock = { nowMs: 0, opened: [] as number[] }
  const breaker = new Breaker({ now: () => clock.nowMs, isProbed, onOpen: (openMs) => clock.opened.push(openMs) })
  return { clock, breaker }
}

test('three failures in a row open it; fewer, or with a success between them, do not', () => {
  const { breaker } = breakerAt()
  for (const isGood of [false, false, true, false, false]) isGood ? breaker.succeeded() : breaker.failed()
  assert.equal(breaker.state, 'closed')
  breaker.failed()
  assert.equal(breaker.state, 'open')
  assert.equal(breaker.admits, false)
})

test('a provider that fails every second time is out after ten failures', () => {
  const { breaker } = breakerAt()
  let failures = 0
  while (breaker.state === 'closed' && failures < 50) {
    breaker.succeeded()
    breaker.failed()
    failures += 1
  }
  assert.equal(failures, 10)
})

test('after its time one request is the trial; a success closes it, a failure doubles the time', () => {
  const { breaker, clock } = breakerAt()
  for (let count = 0; count < 3; count += 1) breaker.failed()
  clock.nowMs += 1_000
  assert.equal(breaker.state, 'half-open')
  breaker.begin()
  assert.equal(breaker.admits, false, 'one trial at a time')
  breaker.failed()
  assert.deepEqual([breaker.state, clock.opened], ['open', [1_000, 2_000]])
  clock.nowMs += 2_000
  breaker.begin()
  breaker.succeeded()
  assert.deepEqual([breaker.state, breaker.admits], ['closed', true])
})

test('the time that it is open never passes half a minute', () => {
  const { breaker, clock } = breakerAt()
  for (let count = 0; count < 3; count += 1) breaker.failed()
  for (let count = 0; count < 20; count += 1) {
    clock.nowMs += 30_000
    assert.equal(breaker.state, 'half-open')
    breaker.failed()
  }
  assert.equal(Math.max(...clock.opened), 30_000)
})

test('a trial whose client leaves, or that never ends, does not keep a provider out', () => {
  const { breaker, clock } = breakerAt()
  for (let count = 0; count < 3; count += 1) breaker.failed()
  clock.nowMs += 1_000
  breaker.begin()
  breaker.released()
  assert.equal(breaker.admits, true)
  breaker.begin()
  clock.nowMs += 30_000
  assert.equal(breaker.admits, true)
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
  for (let count = 0; count < 3; count += 1) breaker.failed()
  for (let count = 0; count < 100; count += 1) breaker.failed()
  breaker.succeeded()
  assert.deepEqual([breaker.state, clock.opened], ['open', [1_000]])
})

test('with a probe it stays open until the probe succeeds', () => {
  const { breaker, clock } = breakerAt(true)
  for (let count = 0; count < 3; count += 1) breaker.failed()
  clock.nowMs += 60_000
  assert.equal(breaker.state, 'open')
  breaker.probed(false)
  assert.deepEqual([breaker.state, clock.opened], ['open', [1_000, 2_000]])
  breaker.probed(true)
  assert.equal(breaker.state, 'half-open')
})
