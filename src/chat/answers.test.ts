import assert from 'node:assert/strict'
import { afterEach, beforeEach, mock, test } from 'node:test'
import { answeringParts, heldRequest, readingClient, routerOf } from '../../test/support/answering.ts'
import { ServiceError } from '../errors.ts'
import type { Payer } from '../ledger/hold-calls.ts'
import { createRequestId } from '../ledger/request-id.ts'
import type { Answer, RetryMark } from './answer.ts'
import { Answers, defaultGrace } from './answers.ts'

const left = new Error('the client left')
const never = new AbortController().signal
const payer: Payer = { partition: 0, accountId: 'a', keyId: 'k' }

beforeEach(() => mock.timers.enable({ apis: ['setTimeout', 'Date'] }))
afterEach(() => mock.timers.reset())

const mark: RetryMark = { attemptHash: undefined, async delivered() {}, async close() {}, expectRetry() {} }

function open(answers: Answers, ofPayer = payer): Answer {
  return answers.open(createRequestId(0, Date.now()), ofPayer, mark)
}

function newAnswers(bytesMax?: number): Answers {
  return new Answers(defaultGrace, () => Date.now(), bytesMax)
}

/** Serves a text of one word. */
function serve(answer: Answer, text: string): Promise<void> {
  const usage = { input_tokens: 5, output_tokens: 1 }
  const router = routerOf([{ type: 'text', text }], [{ type: 'finish', reason: 'stop', usage }])
  return answer.serve(answeringParts({ router }).parts, heldRequest(), readingClient(never).client)
}

test('an answer runs on for ten seconds without a client, and for three after output was written', () => {
  for (const [hasOutput, graceMs] of [
    [false, 10_000],
    [true, 3_000],
  ] as const) {
    const answer = open(newAnswers())
    answer.leave(left, hasOutput)
    mock.timers.tick(graceMs - 1)
    assert.deepEqual([answer.stopped !== undefined, answer.isAbandoned], [false, true])
    mock.timers.tick(1)
    assert.equal(answer.stopped?.reason, left)
  }
})

test('a retry that joins ends the waiting time for retries; when it leaves, another one begins', async () => {
  const answer = open(newAnswers())
  answer.leave(left)
  const waiting = answer.waitForClient()
  const client = new AbortController()
  const joined = answer.join(client.signal, () => {})
  await waiting
  mock.timers.tick(60_000)
  assert.equal(answer.stopped !== undefined, false)
  client.abort(left)
  await assert.rejects(joined)
  mock.timers.tick(9_999)
  assert.equal(answer.stopped !== undefined, false)
  mock.timers.tick(1)
  assert.equal(answer.stopped !== undefined, true)
})

test('a retry that comes after the waiting time changes nothing: the answer stays abandoned', async () => {
  const answer = open(newAnswers())
  answer.leave(left)
  mock.timers.tick(10_000)
  const joined = answer.join(never, () => {})
  assert.deepEqual([answer.stopped !== undefined, answer.isAbandoned], [true, true])
  answer.drop()
  assert.equal(await joined, undefined)
})

test('a retry on another node keeps an answer alive while it polls', () => {
  const answer = open(newAnswers())
  answer.leave(left)
  for (let seconds = 0; seconds < 30; seconds += 1) {
    answer.joinRemotely(3_000)
    mock.timers.tick(1_000)
  }
  assert.equal(answer.stopped !== undefined, false)
  mock.timers.tick(13_000)
  assert.equal(answer.stopped !== undefined, true)
})

test('an answer that the service stops gets no grace period, even if a retry waits for it', () => {
  const answer = open(newAnswers())
  answer.joinRemotely(3_000)
  const stopping = new ServiceError('overloaded', 'stopping')
  answer.leave(stopping)
  assert.equal(answer.stopped?.reason, stopping)
})

test('when the service drains, every grace ends and none begins', () => {
  const answers = newAnswers()
  const [early, late] = [open(answers), open(answers)]
  early.leave(left)
  answers.graces.drain(left)
  late.leave(left)
  assert.deepEqual([early.stopped !== undefined, late.stopped !== undefined], [true, true])
})

test('an account has 32 graces at a time, and five a minute that no retry used', () => {
  const answers = newAnswers()
  const many = Array.from({ length: 40 }, () => open(answers))
  for (const answer of many) answer.leave(left)
  assert.equal(many.filter(({ stopped }) => stopped === undefined).length, 32)
  const other = open(answers, { ...payer, accountId: 'b' })
  other.leave(left)
  assert.equal(other.stopped !== undefined, false)
  mock.timers.tick(10_000)
  const next = open(answers)
  next.leave(left)
  assert.equal(next.stopped !== undefined, true, 'the account used up its minute')
  mock.timers.tick(60_000)
  const later = open(answers)
  later.leave(left)
  assert.equal(later.stopped !== undefined, false)
})

test('every joined retry gets the answer, whatever else is kept; only ended answers are evicted', async () => {
  const answers = newAnswers(10_000)
  const running = open(answers)
  running.log!.add([{ type: 'text', text: 'x'.repeat(1_000) }])
  const joined = running.join(never, () => {})
  const ended = Array.from({ length: 50 }, () => open(answers))
  for (const answer of ended) await serve(answer, 'x'.repeat(1_000))
  const kept = ended.filter(({ requestId }) => answers.find(requestId) !== undefined)
  assert.deepEqual([kept.length, kept.at(-1)], [3, ended.at(-1)])
  assert.equal(answers.find(running.requestId), running)
  await serve(running, 'y')
  assert.deepEqual((await joined)?.events, [{ type: 'text', text: `${'x'.repeat(1_000)}y` }])
})

test('an answer that does not fit into memory cannot be joined: it ends with its client', () => {
  const answer = open(newAnswers(100))
  answer.log!.add([{ type: 'text', text: 'x'.repeat(100) }])
  assert.equal(answer.log!.events, undefined)
  answer.leave(left)
  assert.equal(answer.stopped !== undefined, true)
})
