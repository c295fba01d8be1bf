import { ServiceError } from '../errors.ts'

export type BucketOptions = {
  /** So many at once, … */
  readonly burstMax: number
  /** … and so many per second for ever. */
  readonly perSecond: number
  /** Milliseconds. */
  readonly now: () => number
  /** Buckets that are remembered; the one unused for longest goes first, and a forgotten one is full. */
  readonly bucketsMax?: number
}

/**
 * How often each of many may do something. Each has a bucket of tokens that refills; an empty one refuses. A bucket is
 * one number, the instant at which it will be full, in whole microseconds: nothing is lost to rounding.
 */
export class TokenBuckets {
  readonly #options: Required<BucketOptions>
  readonly #tokenUs: number
  readonly #fullAtUs = new Map<string, number>()

  constructor(options: BucketOptions) {
    this.#options = { bucketsMax: 10_000, ...options }
    this.#tokenUs = Math.ceil(1e6 / options.perSecond)
  }

  /** Takes a token, or throws with how long until there is one. */
  take(name: string): void {
    const waitUs = this.#waitUs(name)
    if (waitUs > 0) throw new RateLimitedError(name, this.#options.perSecond, Math.ceil(waitUs / 1000))
    this.spend(name)
  }

  /** Whether there is a token. */
  has(name: string): boolean {
    return this.#waitUs(name) <= 0
  }

  /** Takes the next token, also one that is not there yet. Returns the milliseconds until it is; undefined when that is too long. */
  reserve(name: string, waitMsMax: number): number | undefined {
    const waitMs = Math.max(0, Math.ceil(this.#waitUs(name) / 1000))
    if (waitMs > waitMsMax) return undefined
    this.spend(name)
    return waitMs
  }

  /** Takes tokens, also when there are none: the bucket refills later then, by as much again as a full one takes at most. */
  spend(name: string, tokens = 1): void {
    const { burstMax, bucketsMax } = this.#options
    const nowUs = this.#nowUs()
    const spentUs = Math.max(nowUs, this.#fullAtUs.get(name) ?? 0) + tokens * this.#tokenUs
    const fullAtUs = Math.min(spentUs, nowUs + 2 * burstMax * this.#tokenUs)
    // Taken out and put back in, so that the map's own order is the order of use.
    this.#fullAtUs.delete(name)
    if (this.#fullAtUs.size >= bucketsMax) this.#forgetOldest()
    this.#fullAtUs.set(name, fullAtUs)
  }

  /** Gives back a token that was not used. */
  giveBack(name: string): void {
    const fullAtUs = this.#fullAtUs.get(name)
    if (fullAtUs !== undefined) this.#fullAtUs.set(name, fullAtUs - this.#tokenUs)
  }

  /** Until there is a token; 0 or less when there is one. */
  #waitUs(name: string): number {
    const nowUs = this.#nowUs()
    const fullAtUs = Math.max(nowUs, this.#fullAtUs.get(name) ?? 0)
    return fullAtUs + this.#tokenUs - nowUs - this.#options.burstMax * this.#tokenUs
  }

  #nowUs(): number {
    return Math.floor(this.#options.now() * 1000)
  }

  #forgetOldest(): void {
    const [oldest] = this.#fullAtUs.keys()
    if (oldest !== undefined) this.#fullAtUs.delete(oldest)
  }
}

export class RateLimitedError extends ServiceError {
  readonly code = 'rate_limited'
  /** Whose bucket is empty. */
  readonly caller: string
  constructor(caller: string, perSecond: number, waitMs: number) {
    super(`Too many requests: the limit is ${perSecond} per second. Wait a moment and send fewer.`, {
      retryAfterMs: waitMs,
    })
    this.caller = caller
  }
}
