export type BreakerState = 'closed' | 'open' | 'half-open'

export type BreakerOptions = {
  /** Monotonic milliseconds. */
  readonly now: () => number
  /** Whether probes run: then an open breaker stays open until `probed(true)`. Without probes it is half-open after its time. */
  readonly isProbed: boolean
  readonly onOpen?: (openMs: number) => void
}

const failuresInRowMax = 3
const recentMax = 20
const recentFailuresMax = 10
const openMsMin = 1_000
const openMsMax = 30_000
// A trial without a result after this time no longer blocks the provider.
const trialMsMax = 30_000

/**
 * A passive circuit breaker. It opens after three failures in a row, or when half of the last twenty answers failed. It stays open
 * twice as long each time the trial request after it fails. Kept in memory: a restart resets it.
 */
export class Breaker {
  readonly #options: BreakerOptions
  /** The last outcomes, newest last; true is a failure. */
  readonly #recent: boolean[] = []
  #failuresInRow = 0
  #openings = 0
  #openUntil: number | undefined
  #isHalfOpen = false
  #trialUntil: number | undefined

  constructor(options: BreakerOptions) {
    this.#options = options
  }

  get state(): BreakerState {
    if (this.#openUntil !== undefined && !this.#options.isProbed && this.#options.now() >= this.#openUntil) {
      this.#halfOpen()
    }
    if (this.#openUntil !== undefined) return 'open'
    return this.#isHalfOpen ? 'half-open' : 'closed'
  }

  /** Whether a request may be sent. While half-open, one request at a time is the trial. */
  get admits(): boolean {
    const { state } = this
    return state === 'closed' || (state === 'half-open' && this.#options.now() >= (this.#trialUntil ?? 0))
  }

  /** A request is sent. Call `succeeded` or `failed` next, or `released` when there is no result. */
  begin(): void {
    if (this.state === 'half-open') this.#trialUntil = this.#options.now() + trialMsMax
  }

  released(): void {
    this.#trialUntil = undefined
  }

  succeeded(): void {
    // An answer that began before the breaker opened says nothing about the provider's current state.
    if (this.state === 'open') return
    if (this.#isHalfOpen) this.#close()
    this.#failuresInRow = 0
    this.#remember(false)
  }

  failed(): void {
    const { state } = this
    if (state === 'open') return
    this.#failuresInRow += 1
    this.#remember(true)
    const recentFailures = this.#recent.filter(Boolean).length
    const isBroken = this.#failuresInRow >= failuresInRowMax || recentFailures >= recentFailuresMax
    if (state === 'half-open' || isBroken) this.#openLonger()
  }

  /** Opens for a given time, for example from `Retry-After`. */
  open(openMs: number): void {
    const until = this.#options.now() + openMs
    this.#isHalfOpen = false
    this.#trialUntil = undefined
    this.#openUntil = Math.max(until, this.#openUntil ?? 0)
    this.#options.onOpen?.(openMs)
  }

  /** The result of a probe while open. After a successful probe the next request is the trial. */
  probed(isGood: boolean): void {
    if (this.#openUntil === undefined) return
    if (isGood) this.#halfOpen()
    else this.#openLonger()
  }

  #openLonger(): void {
    this.open(Math.min(openMsMax, openMsMin * 2 ** this.#openings))
    this.#openings += 1
  }

  #halfOpen(): void {
    this.#openUntil = undefined
    this.#isHalfOpen = true
    this.#trialUntil = undefined
  }

  #close(): void {
    this.#isHalfOpen = false
    this.#trialUntil = undefined
    this.#openings = 0
    this.#recent.length = 0
  }

  #remember(isFailure: boolean): void {
    this.#recent.push(isFailure)
    if (this.#recent.length > recentMax) this.#recent.shift()
  }
}
