import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import type { Payer } from '../ledger/holds.ts'
import {
  claimReplay,
  findAttempt,
  type ReplayClaim,
  refundAttempt,
  releaseReplay,
  settleReplay,
  takeOverReplay,
} from '../ledger/replays.ts'
import type { RequestId } from '../ledger/request-id.ts'
import { type AnswerHead, type Recording, readRecording, writeRecording } from './recording.ts'
import { type RunningAttempt, RunningAttempts } from './running-attempts.ts'

/** What tells that a request is, or may become, a repetition. */
export type RetryMarks = {
  readonly payer: Payer
  readonly body: Buffer
  readonly idempotencyKey: string | undefined
  /** `x-stainless-retry-count`: the OpenAI SDKs send it with every request, 0 at first. */
  readonly retryCount: number | undefined
}

/** Either the answer of an earlier attempt, or the leave to make one's own. */
export type RetryDecision = { readonly replay: Recording } | { readonly own: OwnAttempt }

/** An attempt that others may join or repeat. */
export type OwnAttempt = {
  readonly running: RunningAttempt | undefined
  readonly bodyHash: bigint | undefined
  /** It ended: those who wait are told, and the answer is kept where that was promised. Before the last byte leaves. */
  settle(recording: Recording | undefined): Promise<void>
  /** It came to nothing before anything was held. */
  release(): Promise<void>
}

const retryWindowSeconds = 60
const pollMs = 200
const waitsMax = 3_000
// A claim whose request is not in the ledger yet: its node is about to hold, or has died before it could.
const unheldWaitsMax = 10
const idempotencyKeyMax = 255

/**
 * Makes repeating a request safe. With an `Idempotency-Key` the same body joins the attempt under way or is given its answer
 * again. Without one, a retry that the SDK marks as such does the same within a minute; where the earlier attempt has no
 * answer to give, its charge is given back before the new one holds anything. Equal requests without a mark are two requests.
 */
export class Retries {
  readonly #database: Database
  readonly #running = new RunningAttempts()

  constructor(database: Database) {
    this.#database = database
  }

  /** `onJoin` hears, perhaps several times, of the attempt whose answer is waited for. */
  async decide(
    marks: RetryMarks,
    requestId: RequestId,
    gone: AbortSignal,
    onJoin: (head: AnswerHead) => void,
  ): Promise<RetryDecision> {
    if (marks.idempotencyKey !== undefined) return this.#byKey(marks, marks.idempotencyKey, requestId, gone, onJoin)
    if (marks.retryCount === undefined) return { own: unmarked }
    const bodyHash = sha256(marks.body).readBigInt64BE()
    const replay = marks.retryCount === 0 ? undefined : await this.#findAnswer(marks.payer, bodyHash, gone, onJoin)
    return replay === undefined ? { own: this.#open(requestId, bodyHash) } : { replay }
  }

  async #byKey(
    marks: RetryMarks,
    key: string,
    requestId: RequestId,
    gone: AbortSignal,
    onJoin: (head: AnswerHead) => void,
  ): Promise<RetryDecision> {
    if (key.length > idempotencyKeyMax) throw new IdempotencyKeyTooLongError(key.length)
    const claim = { payer: marks.payer, keyHash: sha256(key), bodyHash: sha256(marks.body) }
    let unheldWaits = 0
    for (let wait = 0; wait < waitsMax; wait += 1) {
      gone.throwIfAborted()
      const result = await claimReplay(this.#database, claim, requestId)
      if (result.claimed) return { own: this.#claimed(claim, requestId) }
      const { earlier } = result
      if (!earlier.sameBody) throw new IdempotencyMismatchError()
      if (earlier.state === 'answered') return { replay: readRecording(earlier.answer) }
      if (earlier.hold !== undefined) onJoin({ requestId: earlier.requestId, ...earlier.hold })
      const recording = await this.#running.find(earlier.requestId)?.join(gone, onJoin)
      if (recording !== undefined) return { replay: recording }
      if (earlier.state === 'running' || (earlier.state === 'unheld' && unheldWaits++ < unheldWaitsMax))
        await sleep(pollMs)
      else if (await takeOverReplay(this.#database, claim, earlier.requestId, requestId)) {
        await refundAttempt(this.#database, marks.payer, earlier.requestId)
        return { own: this.#claimed(claim, requestId) }
      }
    }
    throw new AttemptStillRunningError()
  }

  /** The answer of the attempt before, once it has one. Without one its charge is given back. */
  async #findAnswer(
    payer: Payer,
    bodyHash: bigint,
    gone: AbortSignal,
    onJoin: (head: AnswerHead) => void,
  ): Promise<Recording | undefined> {
    for (let wait = 0; wait < waitsMax; wait += 1) {
      gone.throwIfAborted()
      const earlier = await findAttempt(this.#database, payer, bodyHash, retryWindowSeconds)
      if (earlier === undefined) return undefined
      const running = this.#running.find(earlier.requestId)
      const recording = await running?.join(gone, onJoin)
      if (recording !== undefined) return recording
      if (running !== undefined || earlier.status !== 'held') {
        await refundAttempt(this.#database, payer, earlier.requestId)
        return undefined
      }
      await sleep(pollMs)
    }
    throw new AttemptStillRunningError()
  }

  #open(requestId: RequestId, bodyHash: bigint | undefined): OwnAttempt {
    return {
      running: this.#running.open(requestId),
      bodyHash,
      settle: async (recording) => this.#running.settle(requestId, recording),
      release: async () => this.#running.settle(requestId, undefined),
    }
  }

  #claimed(claim: ReplayClaim, requestId: RequestId): OwnAttempt {
    const own = this.#open(requestId, undefined)
    return {
      ...own,
      settle: async (recording) => {
        try {
          await settleReplay(this.#database, claim, requestId, recording && writeRecording(recording))
        } finally {
          await own.settle(recording)
        }
      },
      release: async () => {
        await releaseReplay(this.#database, claim, requestId)
        await own.release()
      },
    }
  }
}

const unmarked: OwnAttempt = {
  running: undefined,
  bodyHash: undefined,
  settle: async () => {},
  release: async () => {},
}

function sha256(content: Buffer | string): Buffer {
  return createHash('sha256').update(content).digest()
}

export class IdempotencyMismatchError extends ServiceError {
  readonly code = 'idempotency_mismatch'
  constructor() {
    super(
      'This Idempotency-Key was used with another request body within the last day. Use a new key for a new request.',
    )
  }
}

export class IdempotencyKeyTooLongError extends ServiceError {
  readonly code = 'invalid_value'
  constructor(length: number) {
    super(`The Idempotency-Key has ${length} characters; at most ${idempotencyKeyMax} are taken. Shorten it.`)
  }
}

/** The first attempt has been running for longer than anybody can wait. */
export class AttemptStillRunningError extends ServiceError {
  readonly code = 'overloaded'
  constructor() {
    super('The first attempt at this request is still running. Nothing more was held; ask again later.', {
      retryAfterMs: 10_000,
    })
  }
}

/** The client of a retry was already told that it would get the answer of the attempt before, and there will be none. */
export class JoinedAttemptLostError extends ServiceError {
  readonly code = 'overloaded'
  constructor() {
    super(
      'The attempt that this retry waited for came to nothing and costs nothing. Nothing more was held; ask again.',
      {
        retryAfterMs: 1_000,
      },
    )
  }
}
