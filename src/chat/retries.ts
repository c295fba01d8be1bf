import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Database, isPassing } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import type { Payer } from '../ledger/hold-calls.ts'
import {
  claimReplay,
  type EarlierAttempt,
  findAttempts,
  handBackReplay,
  keepReplay,
  type ReplayClaim,
  refundAttempt,
  releaseReplay,
  retryWindowSeconds,
  takeOverReplay,
} from '../ledger/replays.ts'
import type { RequestId } from '../ledger/request-id.ts'
import { type AnswerHead, type Recording, readRecording, writeRecording } from './recording.ts'
import { type RunningAttempt, RunningAttempts } from './running-attempts.ts'
import { type ToldAttempt, ToldAttempts } from './told-attempts.ts'

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
  /** Its answer is whole: what the attempts before it were charged is given back. Before the last byte leaves. */
  delivered(): Promise<void>
  /** It ended: those who wait are told, and the answer is kept where that was promised. Before the last byte leaves. */
  close(recording: Recording | undefined): Promise<void>
  /** It came to nothing before anything was held. */
  release(): Promise<void>
  /** It is free, and its client is about to be told to ask again: the retry that this leads to is of this attempt. */
  toldToRepeat(): void
}

// SDKs try three times unless told otherwise. Somebody who repeats one request for ever wants several answers for one price.
const supersededMax = 5
const pollMs = 200
const waitsMax = 3_000
// A claim whose request is not in the ledger yet: its node is about to hold, or has died before it could.
const unheldWaitsMax = 10
const idempotencyKeyMax = 255

/**
 * Makes repeating a request safe. With an `Idempotency-Key` the same body joins the attempt under way or is given its answer
 * again. Without one, a retry that the SDK marks as such does the same within a minute; where the earlier attempt has no
 * answer to give, its charge is given back once the new one has delivered a whole answer: not before, or whoever reads a stream
 * and hangs up before its end could repeat it, hang up at once, and have read for nothing. Equal requests without a mark are two
 * requests; so are those of which one was told to come back, and its retry is a request of its own.
 */
export class Retries {
  readonly #database: Database
  readonly #ledger: Database
  readonly #running = new RunningAttempts()
  readonly #told: ToldAttempts

  /** `ledger` is for what follows an answer: it has connections that whoever only asks cannot crowd. */
  constructor(database: Database, ledger: Database, now: () => number) {
    this.#database = database
    this.#ledger = ledger
    this.#told = new ToldAttempts(now)
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
    const attempt = {
      keyId: marks.payer.keyId,
      bodyHash: sha256(marks.body).readBigInt64BE(),
      retryCount: marks.retryCount,
    }
    if (this.#isFirst(attempt)) return { own: this.#first(requestId, attempt) }
    const found = await this.#findAnswer(marks.payer, attempt.bodyHash, gone, onJoin)
    if ('replay' in found) return found
    if (found.attempts.length === 0) return { own: this.#first(requestId, attempt) }
    const superseded = supersededBy(marks.retryCount, found.attempts)
    return { own: this.#open(requestId, attempt.bodyHash, () => this.#refund(marks.payer, superseded)) }
  }

  /** Nothing has come of the request before this attempt: it was not made, or its client was told to come back. */
  #isFirst(attempt: ToldAttempt): boolean {
    return attempt.retryCount === 0 || this.#told.take({ ...attempt, retryCount: attempt.retryCount - 1 })
  }

  /** An attempt that stands for none before it. Where it does, a refusal changes nothing: the next stands for those in turn. */
  #first(requestId: RequestId, attempt: ToldAttempt): OwnAttempt {
    return {
      ...this.#open(requestId, attempt.bodyHash, nothing),
      toldToRepeat: () => this.#told.add(attempt),
    }
  }

  async #byKey(
    marks: RetryMarks,
    key: string,
    requestId: RequestId,
    gone: AbortSignal,
    onJoin: (head: AnswerHead) => void,
  ): Promise<RetryDecision> {
    if (key.length > idempotencyKeyMax) throw new IdempotencyKeyTooLongError(key.length)
    const claim = { payer: marks.payer, keyHash: sha256(`${marks.payer.keyId} ${key}`), bodyHash: sha256(marks.body) }
    let unheldWaits = 0
    for (let wait = 0; wait < waitsMax; wait += 1) {
      gone.throwIfAborted()
      const result = await claimReplay(this.#database, claim, requestId)
      if (result.claimed) return { own: this.#claimed(claim, requestId, undefined) }
      const { earlier } = result
      if (!earlier.sameBody) throw new IdempotencyMismatchError()
      if (earlier.state === 'answered') return { replay: readRecording(earlier.answer) }
      if (earlier.hold !== undefined) onJoin({ requestId: earlier.requestId, ...earlier.hold })
      const recording = await this.#running.find(earlier.requestId)?.join(gone, onJoin)
      if (recording !== undefined) return { replay: recording }
      if (earlier.state === 'running' || (earlier.state === 'unheld' && unheldWaits++ < unheldWaitsMax))
        await sleep(pollMs)
      else if (await takeOverReplay(this.#database, claim, earlier.requestId, requestId))
        return { own: this.#claimed(claim, requestId, earlier.requestId) }
    }
    throw new AttemptStillRunningError()
  }

  /** The answer of the attempt before, once it has one. Without one, the attempts before, the newest first. */
  async #findAnswer(
    payer: Payer,
    bodyHash: bigint,
    gone: AbortSignal,
    onJoin: (head: AnswerHead) => void,
  ): Promise<{ readonly replay: Recording } | { readonly attempts: readonly EarlierAttempt[] }> {
    for (let wait = 0; wait < waitsMax; wait += 1) {
      gone.throwIfAborted()
      const attempts = await findAttempts(this.#database, payer, bodyHash, retryWindowSeconds)
      const [earlier] = attempts
      if (earlier === undefined) return { attempts }
      const running = this.#running.find(earlier.requestId)
      const replay = await running?.join(gone, onJoin)
      if (replay !== undefined) return { replay }
      if (running !== undefined || earlier.status !== 'held') return { attempts }
      await sleep(pollMs)
    }
    throw new AttemptStillRunningError()
  }

  async #refund(payer: Payer, superseded: readonly RequestId[]): Promise<void> {
    for (const requestId of superseded) await insist(() => refundAttempt(this.#ledger, payer, requestId))
  }

  #open(requestId: RequestId, bodyHash: bigint | undefined, delivered: OwnAttempt['delivered']): OwnAttempt {
    return {
      running: this.#running.open(requestId),
      bodyHash,
      delivered,
      close: async (recording) => this.#running.close(requestId, recording),
      release: async () => this.#running.close(requestId, undefined),
      toldToRepeat() {},
    }
  }

  /** An attempt that has its key, perhaps from an earlier one: where it comes to less than that, the key goes back. */
  #claimed(claim: ReplayClaim, requestId: RequestId, earlier: RequestId | undefined): OwnAttempt {
    const superseded = earlier === undefined ? [] : [earlier]
    const own = this.#open(requestId, undefined, () => this.#refund(claim.payer, superseded))
    const handBack = async () =>
      earlier !== undefined && insist(() => handBackReplay(this.#ledger, claim, requestId, earlier))
    return {
      ...own,
      close: async (recording) => {
        try {
          if (recording !== undefined || !(await handBack())) {
            const answer = recording && writeRecording(recording)
            await insist(() => keepReplay(this.#ledger, claim, requestId, answer))
          }
        } finally {
          await own.close(recording)
        }
      },
      release: async () => {
        if (!(await handBack())) await insist(() => releaseReplay(this.#ledger, claim, requestId))
        await own.release()
      },
    }
  }
}

const insistMs = 500
const insistMax = 60

/** What follows an answer is repeated through whatever passes: given up, its customer has paid twice, or waits for it in vain. */
async function insist<Result>(work: () => Promise<Result>): Promise<Result> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await work()
    } catch (error) {
      if (!isPassing(error) || tries >= insistMax) throw error
      await sleep(insistMs)
    }
  }
}

async function nothing(): Promise<void> {}

const unmarked: OwnAttempt = {
  running: undefined,
  bodyHash: undefined,
  delivered: nothing,
  close: nothing,
  release: nothing,
  toldToRepeat() {},
}

/**
 * The attempts that a retry stands for, of those before it, the newest first: at most as many as it says it is a retry of. Only
 * the newest may have been answered: another node answered it, and that answer is lost. An older answer was another request's.
 */
function supersededBy(retryCount: number, attempts: readonly EarlierAttempt[]): readonly RequestId[] {
  const chain = attempts.slice(0, retryCount)
  const answered = chain.findIndex(({ status }, index) => index > 0 && (status === 'succeeded' || status === 'held'))
  const unanswered = answered === -1 ? chain : chain.slice(0, answered)
  // Nobody checks the count that is sent: one retry that claims to be the ninety-ninth gives no more back than five do.
  const left = Math.max(0, supersededMax - attempts.filter(({ superseded }) => superseded).length)
  return unanswered
    .filter(({ superseded }) => !superseded)
    .slice(0, left)
    .map(({ requestId }) => requestId)
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
