import { ServiceError } from '../errors.ts'
import type { Payer } from '../ledger/hold-calls.ts'
import type { RequestId } from '../ledger/request-id.ts'
import { type AttemptHead, Recorder, type Recording } from './recording.ts'

// Joins: the running attempts of this node, their grace periods, and their answers for a minute (docs/operations/retry.md).

/** How long an attempt continues without a client, so that a retry can join it. */
export type Grace = { readonly beforeOutputMs: number; readonly afterOutputMs: number }

/** Covers the backoff of the OpenAI SDKs (0.5 to 8 s). They never retry a stream that has begun, so its grace is shorter. */
export const defaultGrace: Grace = { beforeOutputMs: 10_000, afterOutputMs: 3_000 }

/** A request that this node is serving. Retries can join it. */
export class Attempt {
  readonly requestId: RequestId
  readonly payer: Payer
  readonly recorder: Recorder
  /** Called when the last client disconnects. If no retry comes, the charge is what was metered up to now. */
  onAbandoned: () => void = () => {}
  readonly #attempts: Attempts
  readonly #head = Promise.withResolvers<AttemptHead>()
  readonly #result = Promise.withResolvers<Recording | undefined>()
  readonly #cancelled = new AbortController()
  #clients = 1
  #isGivenUp = false
  #isEnded = false
  #graceTimer: NodeJS.Timeout | undefined
  #remoteTimer: NodeJS.Timeout | undefined
  #returned: PromiseWithResolvers<void> | undefined

  constructor(requestId: RequestId, payer: Payer, attempts: Attempts) {
    this.requestId = requestId
    this.payer = payer
    this.recorder = new Recorder((bytes) => attempts.reserve(bytes))
    this.#attempts = attempts
  }

  /** Aborts when no client waits and no retry came within the grace period. */
  get signal(): AbortSignal {
    return this.#cancelled.signal
  }

  /** No client waits for the answer. A retry that comes after the attempt was cancelled gets none of it, and must not pay for it. */
  get isAbandoned(): boolean {
    return this.#clients === 0 || this.#isGivenUp
  }

  get isEnded(): boolean {
    return this.#isEnded
  }

  /** The money is held, so the answer's head is known. */
  admitted(head: AttemptHead): void {
    this.#head.resolve(head)
  }

  /**
   * A client disconnected: the one that began the attempt, or a retry. A `ServiceError` as reason stops the attempt for all
   * clients.
   */
  leave(reason: unknown, hasOutput = false): void {
    this.#clients -= 1
    if (this.#isEnded || (this.#clients > 0 && !(reason instanceof ServiceError))) return
    this.onAbandoned()
    this.#returned = Promise.withResolvers()
    this.#returned.promise.catch(() => {})
    const { grace, graces } = this.#attempts
    if (this.recorder.events === undefined || reason instanceof ServiceError || !graces.begin(this)) this.cancel(reason)
    else
      this.#graceTimer = setTimeout(() => this.cancel(reason), hasOutput ? grace.afterOutputMs : grace.beforeOutputMs)
  }

  /** Ends the attempt: no client waits for its answer. */
  cancel(reason: unknown): void {
    this.#isGivenUp = this.isAbandoned
    this.#endGrace(false)
    this.#cancelled.abort(reason)
    this.#returned?.reject(reason)
  }

  /** Resolves when a client waits for the answer; rejects when the attempt is cancelled. */
  waitForClient(): Promise<void> | undefined {
    return this.isAbandoned ? this.#returned?.promise : undefined
  }

  /** Waits for the answer; undefined when there is none to replay. Calls `onHead` with the answer's head. */
  async join(clientSignal: AbortSignal, onHead: (head: AttemptHead) => void): Promise<Recording | undefined> {
    clientSignal.throwIfAborted()
    const left = Promise.withResolvers<never>()
    const leave = () => left.reject(clientSignal.reason)
    clientSignal.addEventListener('abort', leave, { once: true })
    this.#arrive()
    let isOver = false
    void this.#head.promise.then((head) => {
      if (!isOver) onHead(head)
    })
    try {
      return await Promise.race([this.#result.promise, left.promise])
    } finally {
      isOver = true
      clientSignal.removeEventListener('abort', leave)
      this.leave(clientSignal.reason)
    }
  }

  /** A retry waits on another node. It counts as a client until it has been silent for `forMs`. */
  joinRemotely(forMs: number): void {
    if (this.#isEnded) return
    if (this.#remoteTimer !== undefined) this.#remoteTimer.refresh()
    else {
      this.#arrive()
      this.#remoteTimer = setTimeout(() => {
        this.#remoteTimer = undefined
        this.leave(new Error('the retry on another node disconnected'))
      }, forMs)
    }
  }

  /** The answer; undefined when the attempt ended without one. */
  get result(): Promise<Recording | undefined> {
    return this.#result.promise
  }

  /** Ends the attempt: notifies every joined retry, and keeps a recording for later retries. */
  close(recording: Recording | undefined): void {
    if (this.#isEnded) return
    this.#isEnded = true
    this.#endGrace(recording !== undefined)
    clearTimeout(this.#remoteTimer)
    this.#result.resolve(recording)
    this.#attempts.ended(this, recording !== undefined)
  }

  #arrive(): void {
    this.#clients += 1
    this.#endGrace(true)
    this.#returned?.resolve()
    this.#returned = undefined
  }

  #endGrace(isClaimed: boolean): void {
    if (this.#graceTimer === undefined) return
    clearTimeout(this.#graceTimer)
    this.#graceTimer = undefined
    this.#attempts.graces.end(this, isClaimed)
  }
}

const keptMs = 60_000
const recordedBytesMax = 256 * 1024 * 1024

/** The attempts of this node, and their answers for one minute after the end. */
export class Attempts {
  readonly grace: Grace
  readonly graces: Graces
  readonly #attempts = new Map<RequestId, Attempt>()
  /** Ended attempts with a recording, oldest first. */
  readonly #kept = new Map<Attempt, NodeJS.Timeout>()
  readonly #bytesMax: number
  #bytes = 0

  constructor(grace: Grace, now: () => number, bytesMax = recordedBytesMax) {
    this.grace = grace
    this.graces = new Graces(now)
    this.#bytesMax = bytesMax
  }

  open(requestId: RequestId, payer: Payer): Attempt {
    const attempt = new Attempt(requestId, payer, this)
    this.#attempts.set(requestId, attempt)
    return attempt
  }

  find(requestId: RequestId): Attempt | undefined {
    return this.#attempts.get(requestId)
  }

  /** Reserves memory for a recording. Evicts the oldest answers, never running attempts. */
  reserve(bytes: number): boolean {
    for (const attempt of this.#kept.keys()) {
      if (this.#bytes + bytes <= this.#bytesMax) break
      this.#forget(attempt)
    }
    if (this.#bytes + bytes > this.#bytesMax) return false
    this.#bytes += bytes
    return true
  }

  ended(attempt: Attempt, isKept: boolean): void {
    if (isKept) this.#kept.set(attempt, setTimeout(() => this.#forget(attempt), keptMs).unref())
    else this.#forget(attempt)
  }

  /** Deletes the answers kept in memory for an account, or for some of its API keys. Returns how many. */
  deleteAnswers(accountId: string, keyIds: readonly string[] | undefined): number {
    const found = [...this.#kept.keys()].filter(
      ({ payer }) => payer.accountId === accountId && keyIds?.includes(payer.keyId) !== false,
    )
    for (const attempt of found) this.#forget(attempt)
    return found.length
  }

  #forget(attempt: Attempt): void {
    clearTimeout(this.#kept.get(attempt))
    this.#kept.delete(attempt)
    this.#attempts.delete(attempt.requestId)
    this.#bytes -= attempt.recorder.bytes
  }
}

const perAccountMax = 32
const totalMax = 1_000
const unclaimedPerAccountMax = 5
const unclaimedTotalMax = 100
const minuteMs = 60_000

/**
 * Limits how many attempts continue without a client. Their output is not billed unless a retry comes, so a client that keeps
 * disconnecting without retrying gets no grace.
 */
export class Graces {
  readonly #now: () => number
  readonly #open = new Set<Attempt>()
  #minute = 0
  #unclaimed = new Map<string, number>()
  #unclaimedTotal = 0
  #isDraining = false

  /** `now` returns monotonic milliseconds. */
  constructor(now: () => number) {
    this.#now = now
  }

  /** False when the attempt must end now. */
  begin(attempt: Attempt): boolean {
    this.#turnMinute()
    const { accountId } = attempt.payer
    const ofAccount = [...this.#open].filter(({ payer }) => payer.accountId === accountId).length
    if (this.#isDraining || this.#open.size >= totalMax || ofAccount >= perAccountMax) return false
    if (this.#unclaimedTotal >= unclaimedTotalMax) return false
    if ((this.#unclaimed.get(accountId) ?? 0) >= unclaimedPerAccountMax) return false
    this.#open.add(attempt)
    return true
  }

  end(attempt: Attempt, isClaimed: boolean): void {
    this.#open.delete(attempt)
    if (isClaimed) return
    this.#turnMinute()
    const { accountId } = attempt.payer
    this.#unclaimedTotal += 1
    this.#unclaimed.set(accountId, (this.#unclaimed.get(accountId) ?? 0) + 1)
  }

  /** Shutdown: ends every attempt that waits for a retry, and refuses new ones. */
  drain(reason: unknown): void {
    this.#isDraining = true
    for (const attempt of [...this.#open]) attempt.cancel(reason)
  }

  #turnMinute(): void {
    const minute = Math.floor(this.#now() / minuteMs)
    if (minute === this.#minute) return
    this.#minute = minute
    this.#unclaimed = new Map()
    this.#unclaimedTotal = 0
  }
}
