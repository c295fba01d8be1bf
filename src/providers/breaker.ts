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
/** So many accounts with failures are more than one customer's unusual prompts. */
const failingAccountsMin = 3
const goodMsMax = 60_000
/** For this time while half-open, the trial is left to accounts that did not open the breaker. */
const openersMsMax = 30_000
// A trial without a result after this time no longer blocks the provider.
const trialMsMax = 30_000

/**
 * A passive circuit breaker. It opens after three failures in a row, or when half of the last twenty answers failed. It stays open
 * twice as long each time the trial request after it fails. Kept in memory: a restart resets it.
 *
 * One customer's slow or broken prompts do not open it for all: the failures of one or two accounts do not count while another account
 * got good answers within the last minute, and the trial is another account's.
 */
export class Breaker {
  readonly #options: BreakerOptions
  /** The last outcomes, newest last: the account of each failure, undefined for a success. */
  readonly #recent: (string | undefined)[] = []
  /** The accounts of the failures since the last success. */
  #failing: string[] = []
  /** When accounts last got a good answer, newest last. */
  readonly #good = new Map<string, number>()
  #openers = new Set<string>()
  #openersUntil = 0
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

  /** Whether a request of the account may be sent. While half-open, one request at a time is the trial. */
  admits(account: string): boolean {
    const { state } = this
    if (state !== 'half-open') return state === 'closed'
    return this.#options.now() >= (this.#trialUntil ?? 0) && !this.#isOpener(account)
  }

  /** A request is sent. Call `succeeded` or `failed` next, or `released` when there is no result. */
  begin(): void {
    if (this.state === 'half-open') this.#trialUntil = this.#options.now() + trialMsMax
  }

  released(): void {
    this.#trialUntil = undefined
  }

  succeeded(account: string): void {
    // An answer that began before the breaker opened says nothing about the provider's current state.
    if (this.state === 'open') return
    if (this.#isHalfOpen) this.#close()
    this.#failing = []
    this.#remember(undefined)
    this.#good.delete(account)
    this.#good.set(account, this.#options.now())
    // Enough for `#isContradicted` to find an account other than the failing ones.
    if (this.#good.size > failingAccountsMin) this.#good.delete(this.#good.keys().next().value!)
  }

  failed(account: string): void {
    const { state } = this
    if (state === 'open') return
    // Not a trial: it began before the breaker opened, or no other provider was left.
    if (state === 'half-open' && this.#isOpener(account)) {
      this.released()
      return
    }
    this.#failing = [...this.#failing, account].slice(-recentMax)
    this.#remember(account)
    const recentFailures = this.#recent.filter((failing) => failing !== undefined)
    const isBroken =
      (this.#failing.length >= failuresInRowMax && !this.#isContradicted(this.#failing)) ||
      (recentFailures.length >= recentFailuresMax && !this.#isContradicted(recentFailures))
    if (state !== 'half-open' && !isBroken) return
    this.#openers = new Set(this.#failing)
    this.#openLonger()
  }

  #isContradicted(failing: readonly string[]): boolean {
    const accounts = new Set(failing)
    const sinceMs = this.#options.now() - goodMsMax
    return (
      accounts.size < failingAccountsMin &&
      this.#good.entries().some(([account, atMs]) => atMs > sinceMs && !accounts.has(account))
    )
  }

  #isOpener(account: string): boolean {
    return this.#openers.has(account) && this.#options.now() < this.#openersUntil
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
    this.#openersUntil = this.#options.now() + openersMsMax
    this.#trialUntil = undefined
  }

  #close(): void {
    this.#isHalfOpen = false
    this.#trialUntil = undefined
    this.#openings = 0
    this.#openers.clear()
    this.#recent.length = 0
  }

  #remember(failing: string | undefined): void {
    this.#recent.push(failing)
    if (this.#recent.length > recentMax) this.#recent.shift()
  }
}
