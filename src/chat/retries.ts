import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AccountRef } from '../account-ref.ts'
import { type Database, isPassing } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import type { Payer } from '../ledger/hold-calls.ts'
import {
  awaitReplay,
  claimReplay,
  closeReplay,
  deleteAnswers,
  findWantedReplays,
  type ReplayKey,
  refundAttempt,
  wantedMs,
} from '../ledger/replays.ts'
import type { RequestId } from '../ledger/request-id.ts'
import { type Attempt, Attempts, type Grace } from './attempts.ts'
import { type AnswerHead, type Recording, readRecording, writeRecording } from './recording.ts'
import { type RefusedAttempt, RefusedAttempts } from './refused-attempts.ts'

/** What marks a request as one that may be, or may have, a retry. */
export type RetryMarks = {
  readonly payer: Payer
  readonly body: Buffer
  readonly idempotencyKey: string | undefined
  /** `x-stainless-retry-count`: the OpenAI SDKs send it with every request, 0 at first. */
  readonly retryCount: number | undefined
}

/** An earlier attempt whose answer a retry waits for. Holds nothing of the retry's body, which may be megabytes. */
export type EarlierAttempt = { readonly key: ReplayKey; readonly requestId: RequestId }

/** The request is served, gets an answer that exists, or waits for the answer of an earlier attempt. */
export type RetryDecision =
  | { readonly own: OwnAttempt }
  | { readonly replay: Recording }
  | { readonly earlier: EarlierAttempt }

/** A request that is served. */
export type OwnAttempt = {
  /** Undefined without a mark: nobody can join, and it ends when its client leaves. */
  readonly attempt: Attempt | undefined
  /** Written to the ledger: by this an SDK retry finds it. */
  readonly attemptHash: bigint | undefined
  /** The answer is whole: refunds the attempt that it replaces. Before the last byte leaves. */
  delivered(): Promise<void>
  /** It ended: joined retries are told, and the answer is kept. Before the last byte leaves. */
  close(recording: Recording | undefined): Promise<void>
  /** It cost nothing, and its client was told to retry. */
  toldToRetry(): void
}

const pollMs = 500
const pollsMax = 1_200
const joinedMax = 10
const idempotencyKeyMax = 255

export type RetriesOptions = {
  readonly database: Database
  /** For what follows an answer: connections that customers who only ask cannot use up. */
  readonly ledger: Database
  /** This node, as the ledger knows it. */
  readonly node: string
  readonly grace: Grace
  /** Monotonic milliseconds. */
  readonly now: () => number
}

/**
 * Gives a retry the answer of the attempt before it, never a second one for the price of the first. A retry is a request with the
 * `Idempotency-Key` and body of an earlier one; without such a key, one that the SDK marks as a retry, with the API key and body of an
 * attempt that ended less than a minute ago. It joins that attempt or gets its recorded answer. When there is no answer to give, the
 * retry is served; the ledger then decides what of the earlier attempt's charge is refunded. Equal requests without a mark are two.
 */
export class Retries {
  readonly #options: RetriesOptions
  readonly #attempts: Attempts
  readonly #refused: RefusedAttempts
  /** How many retries wait on this node, by the attempt they wait for. */
  readonly #waiting = new Map<RequestId, number>()

  constructor(options: RetriesOptions) {
    this.#options = options
    this.#attempts = new Attempts(options.grace, options.now)
    this.#refused = new RefusedAttempts(options.now)
  }

  async decide(marks: RetryMarks, requestId: RequestId): Promise<RetryDecision> {
    const { payer, idempotencyKey, retryCount } = marks
    if (idempotencyKey === undefined && retryCount === undefined) return { own: unmarked }
    const bodyHash = sha256(marks.body)
    if (idempotencyKey !== undefined) {
      if (idempotencyKey.length > idempotencyKeyMax) throw new IdempotencyKeyTooLongError(idempotencyKey.length)
      const keyHash = sha256(`${payer.keyId} ${idempotencyKey}`)
      return this.#claim({ payer, keyHash, bodyHash, attemptHash: undefined }, requestId)
    }
    const attemptHash = bodyHash.readBigInt64BE()
    const refused = { keyId: payer.keyId, bodyHash: attemptHash, retryCount: retryCount! }
    if (this.#isFirst(refused)) return { own: this.#first(payer, requestId, refused) }
    const keyHash = sha256(`${payer.keyId} body ${bodyHash.toString('hex')}`)
    return this.#claim({ payer, keyHash, bodyHash, attemptHash }, requestId)
  }

  /** Waits for the answer of an earlier attempt, on this node or another. `onHead` is told which answer it will be. */
  async waitFor(
    { key, requestId }: EarlierAttempt,
    gone: AbortSignal,
    onHead: (head: AnswerHead) => void,
  ): Promise<Recording> {
    const waiting = this.#waiting.get(requestId) ?? 0
    if (waiting >= joinedMax) throw new TooManyRetriesError()
    this.#waiting.set(requestId, waiting + 1)
    try {
      const attempt = this.#attempts.find(requestId)
      const recording = attempt ? await attempt.join(gone, onHead) : await this.#poll(key, requestId, gone, onHead)
      if (recording === undefined) throw new AttemptLostError()
      return recording
    } finally {
      const left = this.#waiting.get(requestId)! - 1
      if (left > 0) this.#waiting.set(requestId, left)
      else this.#waiting.delete(requestId)
    }
  }

  /** Gives retries on other nodes what they wait for. Called every half second. */
  async serveOtherNodes(): Promise<void> {
    const { database, node } = this.#options
    for (const wanted of await findWantedReplays(database, node)) {
      const attempt = this.#attempts.find(wanted.requestId)
      if (attempt !== undefined && !attempt.isEnded) attempt.joinRemotely(wantedMs)
      else await closeReplay(database, wanted, wanted.requestId, toAnswer(await attempt?.result))
    }
  }

  /** Deletes the answers that are kept for an account, or for one of its API keys. Returns how many. */
  async deleteAnswers(owner: AccountRef, keyId: string | undefined): Promise<number> {
    const inMemory = this.#attempts.deleteAnswers(owner.accountId, keyId)
    return Math.max(inMemory, await deleteAnswers(this.#options.database, owner, keyId))
  }

  /** Ends the attempts that wait for a retry: the service stops. */
  drain(): void {
    this.#attempts.graces.drain(new Error('the service stops'))
  }

  async #claim(key: ReplayKey, requestId: RequestId): Promise<RetryDecision> {
    const { database, node } = this.#options
    // Open before the claim is visible: another retry on this node must find the attempt.
    const attempt = this.#attempts.open(requestId, key.payer)
    const own = { requestId, node }
    try {
      let claim = await claimReplay(database, key, own)
      if (claim.state === 'running' && claim.node === node && this.#attempts.find(claim.requestId) === undefined)
        claim = await claimReplay(database, key, own, claim.requestId)
      if (claim.state === 'claimed') return { own: this.#claimed(key, attempt) }
      attempt.close(undefined)
      if (claim.state === 'answered') return { replay: readRecording(claim.answer) }
      if (claim.state === 'running') return { earlier: { key, requestId: claim.requestId } }
      throw new IdempotencyMismatchError()
    } catch (error) {
      attempt.close(undefined)
      throw error
    }
  }

  async #poll(
    key: ReplayKey,
    requestId: RequestId,
    gone: AbortSignal,
    onHead: (head: AnswerHead) => void,
  ): Promise<Recording | undefined> {
    for (let poll = 0; poll < pollsMax; poll += 1) {
      gone.throwIfAborted()
      const { answer, lost, hold } = await awaitReplay(this.#options.database, key, requestId)
      if (answer !== undefined) return readRecording(answer)
      if (lost) return undefined
      if (hold !== undefined) onHead({ requestId, ...hold })
      await sleep(pollMs)
    }
    throw new AttemptStillRunningError()
  }

  /** Nothing came of this request before: it was not sent, or its earlier attempt was refused. */
  #isFirst(attempt: RefusedAttempt): boolean {
    return attempt.retryCount === 0 || this.#refused.take({ ...attempt, retryCount: attempt.retryCount - 1 })
  }

  /** The first attempt of an SDK. Costs no round trip: its retry finds it by the body hash in the ledger. */
  #first(payer: Payer, requestId: RequestId, refused: RefusedAttempt): OwnAttempt {
    const attempt = this.#attempts.open(requestId, payer)
    return {
      attempt,
      attemptHash: refused.bodyHash,
      delivered: async () => {},
      close: async (recording) => attempt.close(recording),
      toldToRetry: () => this.#refused.add(refused),
    }
  }

  #claimed(key: ReplayKey, attempt: Attempt): OwnAttempt {
    const { ledger } = this.#options
    const { requestId } = attempt
    return {
      attempt,
      attemptHash: key.attemptHash,
      delivered: async () => void (await retryTransient(() => refundAttempt(ledger, key, requestId))),
      close: async (recording) => {
        try {
          await retryTransient(() => closeReplay(ledger, key, requestId, toAnswer(recording)))
        } finally {
          attempt.close(recording)
        }
      },
      toldToRetry() {},
    }
  }
}

const unmarked: OwnAttempt = {
  attempt: undefined,
  attemptHash: undefined,
  delivered: async () => {},
  close: async () => {},
  toldToRetry() {},
}

const transientMs = 500
const transientMax = 60

/** Without this write the customer pays twice, or waits for an answer that nobody gives. */
async function retryTransient<Result>(work: () => Promise<Result>): Promise<Result> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await work()
    } catch (error) {
      if (!isPassing(error) || tries >= transientMax) throw error
      await sleep(transientMs)
    }
  }
}

function toAnswer(recording: Recording | undefined): string | undefined {
  return recording && writeRecording(recording)
}

function sha256(content: Buffer | string): Buffer {
  return createHash('sha256').update(content).digest()
}

export class IdempotencyMismatchError extends ServiceError {
  readonly code = 'idempotency_mismatch'
  constructor() {
    super(
      'This Idempotency-Key was used with another request body within the last 24 hours. Use a new key for a new request.',
    )
  }
}

export class IdempotencyKeyTooLongError extends ServiceError {
  readonly code = 'invalid_value'
  constructor(length: number) {
    super(`The Idempotency-Key has ${length} characters; the limit is ${idempotencyKeyMax}. Use a shorter key.`)
  }
}

export class AttemptStillRunningError extends ServiceError {
  readonly code = 'overloaded'
  constructor() {
    super('The first attempt of this request is still running. Nothing more was held. Retry later.', {
      retryAfterMs: 10_000,
    })
  }
}

export class TooManyRetriesError extends ServiceError {
  readonly code = 'overloaded'
  constructor() {
    super(`${joinedMax} retries already wait for the first attempt of this request. Retry in 5 seconds.`, {
      retryAfterMs: 5_000,
    })
  }
}

/** The attempt that a retry waited for ended without an answer. Its body is gone by then, so it cannot be served itself. */
export class AttemptLostError extends ServiceError {
  readonly code = 'overloaded'
  constructor() {
    super('The attempt that this retry waited for ended without an answer. Nothing more was held. Retry now.', {
      retryAfterMs: 1_000,
    })
  }
}
