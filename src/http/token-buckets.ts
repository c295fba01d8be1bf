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
    const { burstMax, perSecond, now, bucketsMax } = this.#options
    const nowUs = Math.floor(now() * 1000)
    const fullAtUs = Math.max(nowUs, this.#fullAtUs.get(name) ?? 0) + this.#tokenUs
    const overdrawnUs = fullAtUs - nowUs - burstMax * this.#tokenUs
    if (overdrawnUs > 0) throw new RateLimitedError(perSecond, Math.ceil(overdrawnUs / 1000))
    // Taken out and put back in, so that the map's own order is the order of use.
    this.#fullAtUs.delete(name)
    if (this.#fullAtUs.size >= bucketsMax) this.#forgetOldest()
    this.#fullAtUs.set(name, fullAtUs)
  }

  #forgetOldest(): void {
    const [oldest] = this.#fullAtUs.keys()
    if (oldest !== undefined) this.#fullAtUs.delete(oldest)
  }
}

export class RateLimitedError extends ServiceError {
  readonly code = 'rate_limited'
  constructor(perSecond: number, waitMs: number) {
    super(
      `Too many requests: ${perSecond === 1 ? 'one' : perSecond} per second is answered here. Wait a moment and go on slower.`,
      { retryAfterMs: waitMs },
    )
  }
}
