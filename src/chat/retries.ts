import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AccountRef } from '../db/account-ref.ts'
import { type Database, isLockTimeout, isTransient } from '../db/database.ts'
import { retry } from '../db/retry.ts'
import { ServiceError } from '../errors.ts'
import { AccountConcurrencyLimits } from '../fairness/concurrency-limit.ts'
import { TokenBuckets } from '../fairness/token-buckets.ts'
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
import { Answer, AnswerLostError, type RetryMark } from './answer.ts'
import { Answers, type Grace } from './answers.ts'
import { type AnswerHead, type Recording, readRecording, writeRecording } from './log.ts'
import { type RefusedAttempt, RefusedAttempts } from './refused-attempts.ts'

// Decides whether a retry joins, waits, is replayed or is served (docs/operations/retry.md).

/** The fields that mark a request as a retry, or as one that may be retried. */
export type RetryMarks = {
  readonly payer: Payer
  readonly body: Buffer
  readonly idempotencyKey: string | undefined
  /** `x-stainless-retry-count`: the OpenAI SDKs send it with every request, starting at 0. */
  readonly retryCount: number | undefined
}

/** An earlier attempt whose answer a retry waits for. Does not keep the retry's body, which may be megabytes. */
export type EarlierAttempt = { readonly key: ReplayKey; readonly requestId: RequestId }

/** A new answer, the recording of an earlier one, or an earlier one to wait for. */
export type RetryDecision =
  | { readonly answer: Answer }
  | { readonly replay: Recording }
  | { readonly earlier: EarlierAttempt }

const pollMs = 500
const pollsMax = 1_200
const joinedMax = 10
const idempotencyKeyMax = 255
/** Claims and polls: half of the connections of the pool. The queue is bounded by the requests that the node accepts. */
const readsPerAccountMax = 2
const writesPerAccountMax = 4
/** How often one answer is replayed: a replay costs nothing but sends up to 2 MiB. */
const replayRate = { burstMax: 20, perSecond: 1 / 60 }

export type RetriesOptions = {
  readonly database: Database
  /** For writes that follow an answer: connections that read requests cannot exhaust. */
  readonly ledger: Database
  /** This node's id in the ledger. */
  readonly node: string
  readonly grace: Grace
  /** Monotonic milliseconds. */
  readonly now: () => number
}

/**
 * Replays the answer of an earlier attempt to its retry; never serves a second answer for the price of one. A retry is a request
 * with the `Idempotency-Key` and body of an earlier one. Without such a key, it is a request that the SDK marks as a retry, with
 * the API key and body of an attempt that ended less than a minute ago. It joins that attempt or gets its recorded answer. When
 * there is no answer, the retry is served, and the ledger decides how much of the earlier charge is refunded. Equal requests
 * without a mark are separate requests.
 */
export class Retries {
  readonly #options: RetriesOptions
  readonly #answers: Answers
  readonly #refused: RefusedAttempts
  /** By the hash of the retry key. */
  readonly #replays: TokenBuckets
  /** How many retries wait on this node, by the attempt they wait for. */
  readonly #waiting = new Map<RequestId, number>()
  // These calls are not batched: without a limit one account could occupy all connections, also with calls that wait for its lock.
  readonly #readLimits = new AccountConcurrencyLimits(readsPerAccountMax, Number.POSITIVE_INFINITY)
  readonly #writeLimits = new AccountConcurrencyLimits(writesPerAccountMax, Number.POSITIVE_INFINITY)

  constructor(options: RetriesOptions) {
    this.#options = options
    this.#answers = new Answers(options.grace, options.now)
    this.#refused = new RefusedAttempts(options.now)
    this.#replays = new TokenBuckets({ ...replayRate, now: options.now })
  }

  async decide(marks: RetryMarks, requestId: RequestId): Promise<RetryDecision> {
    const { payer, idempotencyKey, retryCount } = marks
    if (idempotencyKey === undefined && retryCount === undefined) return { answer: new Answer(requestId, payer) }
    const bodyHash = sha256(marks.body)
    if (idempotencyKey !== undefined) {
      if (idempotencyKey.length > idempotencyKeyMax)
        throw new ServiceError(
          'invalid_value',
          `The Idempotency-Key has ${idempotencyKey.length} characters; the limit is ${idempotencyKeyMax}. Use a shorter key.`,
        )
      const keyHash = sha256(`${payer.keyId} ${idempotencyKey}`)
      return this.#claim({ payer, keyHash, bodyHash, attemptHash: undefined }, requestId)
    }
    const attemptHash = bodyHash.readBigInt64BE()
    const refused = { keyId: payer.keyId, bodyHash: attemptHash, retryCount: retryCount! }
    // It is the first attempt when there is no earlier one, or when the earlier one was refused.
    const isFirst = refused.retryCount === 0 || this.#refused.take({ ...refused, retryCount: refused.retryCount - 1 })
    if (isFirst) return { answer: this.#answers.open(requestId, payer, this.#firstMark(refused)) }
    // No Idempotency-Key contains a line break.
    const keyHash = sha256(`${payer.keyId}\nbody ${bodyHash.toString('hex')}`)
    return this.#claim({ payer, keyHash, bodyHash, attemptHash }, requestId)
  }

  /** Waits for the answer of an earlier attempt, on this node or another. Calls `onHead` with the answer's head. */
  async waitFor(
    { key, requestId }: EarlierAttempt,
    clientSignal: AbortSignal,
    onHead: (head: AnswerHead) => void,
  ): Promise<Recording> {
    const waiting = this.#waiting.get(requestId) ?? 0
    if (waiting >= joinedMax) throw new TooManyRetriesError()
    this.#waiting.set(requestId, waiting + 1)
    try {
      const answer = this.#answers.find(requestId)
      const recording = answer
        ? await answer.join(clientSignal, onHead)
        : await this.#poll(key, requestId, clientSignal, onHead)
      if (recording === undefined) throw new AnswerLostError()
      return recording
    } finally {
      const left = this.#waiting.get(requestId)! - 1
      if (left > 0) this.#waiting.set(requestId, left)
      else this.#waiting.delete(requestId)
    }
  }

  /** Publishes the answers that retries on other nodes wait for. Called every half second. */
  async serveOtherNodes(): Promise<void> {
    const { database, node } = this.#options
    for (const wanted of await findWantedReplays(database, node)) {
      const answer = this.#answers.find(wanted.requestId)
      if (answer !== undefined && !answer.isEnded) answer.joinRemotely(wantedMs)
      else await closeReplay(database, wanted, wanted.requestId, toText(await answer?.result))
    }
  }

  /** Deletes the stored answers of an account, or of some of its API keys. Returns how many. */
  async deleteAnswers(owner: AccountRef, keyIds: readonly string[] | undefined): Promise<number> {
    const inMemory = this.#answers.deleteAnswers(owner.accountId, keyIds)
    return Math.max(inMemory, await deleteAnswers(this.#options.database, owner, keyIds))
  }

  /** Shutdown: ends the attempts that wait for a retry. */
  drain(): void {
    this.#answers.graces.drain(new Error('the service stops'))
  }

  async #claim(key: ReplayKey, requestId: RequestId): Promise<RetryDecision> {
    const { node } = this.#options
    const name = key.keyHash.toString('base64')
    // Before the claim, which reads the answer from the database.
    if (this.#replays.reserve(name, 0) === undefined)
      throw new ServiceError(
        'rate_limited',
        `This answer was replayed ${replayRate.burstMax} times; after that, once a minute. Keep the answer that you have, or retry in a minute.`,
        { retryAfterMs: 60_000 },
      )
    let isReplay = false
    // Open the answer before the claim is visible: another retry on this node must find it.
    const answer = this.#answers.open(requestId, key.payer, this.#claimedMark(key, requestId))
    let isClaimed = false
    const own = { requestId, node }
    try {
      let claim = await this.#claimReplay(key, own)
      if (claim.state === 'running' && claim.node === node && this.#answers.find(claim.requestId) === undefined)
        claim = await this.#claimReplay(key, own, claim.requestId)
      isClaimed = claim.state === 'claimed'
      if (isClaimed) return { answer }
      isReplay =
        claim.state === 'answered' ||
        (claim.state === 'running' && this.#answers.find(claim.requestId)?.isEnded === true)
      if (claim.state === 'answered') return { replay: readRecording(claim.answer) }
      if (claim.state === 'running') return { earlier: { key, requestId: claim.requestId } }
      throw new ServiceError(
        'idempotency_mismatch',
        'This Idempotency-Key was used with another request body within the last 24 hours. Use a new key for a new request.',
      )
    } finally {
      if (!isClaimed) answer.drop()
      if (!isReplay) this.#replays.giveBack(name)
    }
  }

  #claimReplay(key: ReplayKey, own: { requestId: RequestId; node: string }, answerless?: RequestId) {
    const claim = () => claimReplay(this.#options.database, key, own, answerless)
    const limitedClaim = () => this.#readLimits.run(key.payer.accountId, claim)
    return retry(limitedClaim, (error, tries) => isLockTimeout(error) && tries < claimTriesMax)
  }

  async #poll(
    key: ReplayKey,
    requestId: RequestId,
    clientSignal: AbortSignal,
    onHead: (head: AnswerHead) => void,
  ): Promise<Recording | undefined> {
    for (let poll = 0; poll < pollsMax; poll += 1) {
      clientSignal.throwIfAborted()
      const look = () => awaitReplay(this.#options.database, key, requestId)
      const { answer, lost, hold } = await this.#readLimits.run(key.payer.accountId, look)
      if (answer !== undefined) return readRecording(answer)
      if (lost) return undefined
      if (hold !== undefined) onHead({ requestId, ...hold })
      await sleep(pollMs)
    }
    throw new ServiceError(
      'overloaded',
      'The first attempt of this request is still running. You were not charged for this retry. Retry later.',
      {
        retryAfterMs: 10_000,
      },
    )
  }

  /** The first attempt of an SDK. Costs no round trip: its retry finds it by the body hash in the ledger. */
  #firstMark(refused: RefusedAttempt): RetryMark {
    return {
      attemptHash: refused.bodyHash,
      delivered: async () => {},
      close: async () => {},
      expectRetry: () => this.#refused.add(refused),
    }
  }

  #claimedMark(key: ReplayKey, requestId: RequestId): RetryMark {
    const { ledger } = this.#options
    // Retried: without the write the customer pays twice, or waits for an answer that never comes.
    const write = <Result>(work: () => Promise<Result>) =>
      retry(
        () => this.#writeLimits.run(key.payer.accountId, work),
        (error, tries) => isTransient(error) && tries < writeTriesMax,
      )
    return {
      attemptHash: key.attemptHash,
      delivered: async () => void (await write(() => refundAttempt(ledger, key, requestId))),
      close: (recording) => write(() => closeReplay(ledger, key, requestId, toText(recording))),
      expectRetry() {},
    }
  }
}

/** About five seconds, when another session keeps the retry key locked. */
const claimTriesMax = 10

/** About half a minute in total, 45 seconds while the account is locked. */
const writeTriesMax = 64

function toText(recording: Recording | undefined): string | undefined {
  return recording && writeRecording(recording)
}

function sha256(content: Buffer | string): Buffer {
  return createHash('sha256').update(content).digest()
}

export class TooManyRetriesError extends ServiceError {
  constructor() {
    super(
      'overloaded',
      `${joinedMax} retries are already waiting for the first attempt of this request. Retry in 5 seconds.`,
      {
        retryAfterMs: 5_000,
      },
    )
  }
}
