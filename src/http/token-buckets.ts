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

/** How often each of many may do something. Each has a bucket of tokens that refills; an empty one refuses. */
export class TokenBuckets {
  readonly #options: Required<BucketOptions>
  readonly #buckets = new Map<string, { readonly tokens: number; readonly atMs: number }>()

  constructor(options: BucketOptions) {
    this.#options = { bucketsMax: 10_000, ...options }
  }

  /** Takes a token, or throws with how long until there is one. */
  take(name: string): void {
    const { burstMax, perSecond, now, bucketsMax } = this.#options
    const atMs = now()
    const bucket = this.#buckets.get(name)
    const tokens =
      bucket === undefined ? burstMax : Math.min(burstMax, bucket.tokens + ((atMs - bucket.atMs) / 1000) * perSecond)
    if (tokens < 1) throw new RateLimitedError(perSecond, ((1 - tokens) / perSecond) * 1000)
    // Taken out and put back in, so that the map's own order is the order of use.
    this.#buckets.delete(name)
    if (this.#buckets.size >= bucketsMax) this.#forgetOldest()
    this.#buckets.set(name, { tokens: tokens - 1, atMs })
  }

  #forgetOldest(): void {
    const [oldest] = this.#buckets.keys()
    if (oldest !== undefined) this.#buckets.delete(oldest)
  }
}

export class RateLimitedError extends ServiceError {
  readonly code = 'rate_limited'
  constructor(perSecond: number, waitMs: number) {
    super(
      `Too many requests: ${perSecond >= 1 ? `${perSecond} per second are` : `one in ${Math.round(1 / perSecond)} seconds is`} answered here. Wait a moment and go on slower.`,
      { retryAfterMs: Math.ceil(waitMs) },
    )
  }
}
