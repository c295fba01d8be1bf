import assert from 'node:assert/strict'
import { afterEach, beforeEach, mock, test } from 'node:test'
import { ServiceError } from '../errors.ts'
import type { Payer } from '../ledger/hold-calls.ts'
import { createRequestId } from '../ledger/request-id.ts'
import { zero } from '../money/usdc.ts'
import { type Attempt, Attempts, defaultGrace } from './attempts.ts'
import type { Recording } from './recording.ts'

const left = new Error('the client left')
const never = new AbortController().signal
const payer: Payer = { partition: 0, accountId: 'a', keyId: 'k' }

beforeEach(() => mock.timers.enable({ apis: ['setTimeout', 'Date'] }))
afterEach(() => mock.timers.reset())

function open(attempts: Attempts, ofPayer = payer): Attempt {
  return attempts.open(createRequestId(0, Date.now()), ofPayer)
}

function newAttempts(bytesMax?: number): Attempts {
  return new Attempts(defaultGrace, () => Date.now(), bytesMax)
}

function recordingOf(attempt: Attempt): Recording {
  return {
    requestId: attempt.requestId,
    model: 'm',
    createdAt: new Date(),
    held: zero,
    finishReason: 'stop',
    usage: { promptTokens: 0, completionTokens: 0, reasoningTokens: 0, cachedTokens: 0, source: 'counted' },
    charged: zero,
    searchCost: zero,
    inputCost: zero,
    events: attempt.recorder.events ?? [],
  }
}

test('an attempt runs on for ten seconds without a client, and for three after output was written', () => {
  for (const [hasOutput, graceMs] of [
    [false, 10_000],
    [true, 3_000],
  ] as const) {
    const attempt = open(newAttempts())
    let abandoned = 0
    attempt.onAbandoned = () => {
      abandoned += 1
    }
    attempt.leave(left, hasOutput)
    mock.timers.tick(graceMs - 1)
    assert.deepEqual([attempt.signal.aborted, abandoned], [false, 1])
    mock.timers.tick(1)
    assert.equal(attempt.signal.reason, left)
  }
})

test('a retry that joins ends the waiting time for retries; when it leaves, another one begins', async () => {
  const attempt = open(newAttempts())
  attempt.leave(left)
  const waiting = attempt.waitForClient()
  const client = new AbortController()
  const joined = attempt.join(client.signal, () => {})
  await waiting
  mock.timers.tick(60_000)
  assert.equal(attempt.signal.aborted, false)
  client.abort(left)
  await assert.rejects(joined)
  mock.timers.tick(9_999)
  assert.equal(attempt.signal.aborted, false)
  mock.timers.tick(1)
  assert.equal(attempt.signal.aborted, true)
})

test('a retry that comes after the waiting time changes nothing: the attempt stays abandoned', async () => {
  const attempt = open(newAttempts())
  attempt.leave(left)
  mock.timers.tick(10_000)
  const joined = attempt.join(never, () => {})
  assert.deepEqual([attempt.signal.aborted, attempt.isAbandoned], [true, true])
  attempt.close(undefined)
  assert.equal(await joined, undefined)
})

test('a retry on another node keeps an attempt alive while it polls', () => {
  const attempt = open(newAttempts())
  attempt.leave(left)
  for (let seconds = 0; seconds < 30; seconds += 1) {
    attempt.joinRemotely(3_000)
    mock.timers.tick(1_000)
  }
  assert.equal(attempt.signal.aborted, false)
  mock.timers.tick(13_000)
  assert.equal(attempt.signal.aborted, true)
})

test('an attempt that the service stops gets no grace period, even if a retry waits for it', () => {
  const attempt = open(newAttempts())
  attempt.joinRemotely(3_000)
  const stopping = new ServiceError('overloaded', 'stopping')
  attempt.leave(stopping)
  assert.equal(attempt.signal.reason, stopping)
})

test('when the service drains, every grace ends and none begins', () => {
  const attempts = newAttempts()
  const [early, late] = [open(attempts), open(attempts)]
  early.leave(left)
  attempts.graces.drain(left)
  late.leave(left)
  assert.deepEqual([early.signal.aborted, late.signal.aborted], [true, true])
})

test('an account has 32 graces at a time, and five a minute that no retry used', () => {
  const attempts = newAttempts()
  const many = Array.from({ length: 40 }, () => open(attempts))
  for (const attempt of many) attempt.leave(left)
  assert.equal(many.filter(({ signal }) => !signal.aborted).length, 32)
  const other = open(attempts, { ...payer, accountId: 'b' })
  other.leave(left)
  assert.equal(other.signal.aborted, false)
  mock.timers.tick(10_000)
  const next = open(attempts)
  next.leave(left)
  assert.equal(next.signal.aborted, true, 'the account used up its minute')
  mock.timers.tick(60_000)
  const later = open(attempts)
  later.leave(left)
  assert.equal(later.signal.aborted, false)
})

test('every joined retry gets the answer, whatever else is kept; only ended answers are evicted', async () => {
  const attempts = newAttempts(10_000)
  const running = open(attempts)
  running.recorder.add([{ type: 'text', text: 'x'.repeat(2_000) }])
  const joined = running.join(never, () => {})
  const ended = Array.from({ length: 50 }, () => {
    const attempt = open(attempts)
    attempt.recorder.add([{ type: 'text', text: 'x'.repeat(1_000) }])
    attempt.close(recordingOf(attempt))
    return attempt
  })
  const kept = ended.filter(({ requestId }) => attempts.find(requestId) !== undefined)
  assert.deepEqual([kept.length, kept.at(-1)], [2, ended.at(-1)])
  assert.equal(attempts.find(running.requestId), running)
  running.close(recordingOf(running))
  assert.equal((await joined)?.requestId, running.requestId)
})

test('an answer that does not fit into memory cannot be joined: its attempt ends with its client', () => {
  const attempt = open(newAttempts(100))
  attempt.recorder.add([{ type: 'text', text: 'x'.repeat(100) }])
  assert.equal(attempt.recorder.events, undefined)
  attempt.leave(left)
  assert.equal(attempt.signal.aborted, true)
})
