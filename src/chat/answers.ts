import type { Payer } from '../ledger/hold-calls.ts'
import type { RequestId } from '../ledger/request-id.ts'
import { Answer, type RetryMark } from './answer.ts'

// The answers of this node that retries can read: those that run, their grace periods, and those that ended within the last minute
// (docs/operations/retry.md).

/** How long an answer continues without a client, so that a retry can join it. */
export type Grace = { readonly beforeOutputMs: number; readonly afterOutputMs: number }

/** Covers the backoff of the OpenAI SDKs (0.5 to 8 s). They never retry a stream that has begun, so its grace is shorter. */
export const defaultGrace: Grace = { beforeOutputMs: 10_000, afterOutputMs: 3_000 }

const keptMs = 60_000
const logBytesMax = 256 * 1024 * 1024

export class Answers {
  readonly grace: Grace
  readonly graces: Graces
  readonly #answers = new Map<RequestId, Answer>()
  /** Ended answers with a recording, oldest first. */
  readonly #kept = new Map<Answer, NodeJS.Timeout>()
  readonly #bytesMax: number
  #bytes = 0

  /** `now` returns monotonic milliseconds. */
  constructor(grace: Grace, now: () => number, bytesMax = logBytesMax) {
    this.grace = grace
    this.graces = new Graces(now)
    this.#bytesMax = bytesMax
  }

  /** An answer that retries can find from now on. */
  open(requestId: RequestId, payer: Payer, mark: RetryMark): Answer {
    const answer = new Answer(requestId, payer, { mark, answers: this })
    this.#answers.set(requestId, answer)
    return answer
  }

  find(requestId: RequestId): Answer | undefined {
    return this.#answers.get(requestId)
  }

  /** Reserves memory for a log. Evicts the oldest ended answers, never running ones. */
  reserve(bytes: number): boolean {
    for (const answer of this.#kept.keys()) {
      if (this.#bytes + bytes <= this.#bytesMax) break
      this.#forget(answer)
    }
    if (this.#bytes + bytes > this.#bytesMax) return false
    this.#bytes += bytes
    return true
  }

  ended(answer: Answer, isKept: boolean): void {
    if (isKept) this.#kept.set(answer, setTimeout(() => this.#forget(answer), keptMs).unref())
    else this.#forget(answer)
  }

  /** Deletes the answers kept in memory for an account, or for some of its API keys. Returns how many. */
  deleteAnswers(accountId: string, keyIds: readonly string[] | undefined): number {
    const found = [...this.#kept.keys()].filter(
      ({ payer }) => payer.accountId === accountId && keyIds?.includes(payer.keyId) !== false,
    )
    for (const answer of found) this.#forget(answer)
    return found.length
  }

  #forget(answer: Answer): void {
    clearTimeout(this.#kept.get(answer))
    this.#kept.delete(answer)
    this.#answers.delete(answer.requestId)
    this.#bytes -= answer.log?.bytes ?? 0
  }
}

const perAccountMax = 32
const totalMax = 1_000
const unclaimedPerAccountMax = 5
const unclaimedTotalMax = 100
const minuteMs = 60_000

/**
 * Limits how many answers continue without a client. Their output is not billed unless a retry comes, so a client that keeps
 * disconnecting without retrying gets no grace.
 */
export class Graces {
  readonly #now: () => number
  readonly #open = new Set<Answer>()
  #minute = 0
  #unclaimed = new Map<string, number>()
  #unclaimedTotal = 0
  #isDraining = false

  constructor(now: () => number) {
    this.#now = now
  }

  /** False when the answer must end now. */
  begin(answer: Answer): boolean {
    this.#turnMinute()
    const { accountId } = answer.payer
    const ofAccount = [...this.#open].filter(({ payer }) => payer.accountId === accountId).length
    if (this.#isDraining || this.#open.size >= totalMax || ofAccount >= perAccountMax) return false
    if (this.#unclaimedTotal >= unclaimedTotalMax) return false
    if ((this.#unclaimed.get(accountId) ?? 0) >= unclaimedPerAccountMax) return false
    this.#open.add(answer)
    return true
  }

  end(answer: Answer, isClaimed: boolean): void {
    this.#open.delete(answer)
    if (isClaimed) return
    this.#turnMinute()
    const { accountId } = answer.payer
    this.#unclaimedTotal += 1
    this.#unclaimed.set(accountId, (this.#unclaimed.get(accountId) ?? 0) + 1)
  }

  /** Shutdown: ends every answer that waits for a retry, and refuses new graces. */
  drain(reason: unknown): void {
    this.#isDraining = true
    for (const answer of [...this.#open]) answer.stop(reason)
  }

  #turnMinute(): void {
    const minute = Math.floor(this.#now() / minuteMs)
    if (minute === this.#minute) return
    this.#minute = minute
    this.#unclaimed = new Map()
    this.#unclaimedTotal = 0
  }
}
