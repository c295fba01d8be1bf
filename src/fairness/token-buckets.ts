import { ServiceError } from '../errors.ts'

export type BucketOptions = {
  /** Capacity of a bucket. */
  readonly burstMax: number
  /** Refill rate. */
  readonly perSecond: number
  /** Milliseconds. */
  readonly now: () => number
  /** Buckets in memory. The least recently used one is dropped first; a dropped bucket counts as full. */
  readonly bucketsMax?: number
}

/**
 * Rate limits by name, as token buckets. A bucket is one number: the time at which it will be full, in whole microseconds, so rounding
 * loses nothing.
 */
export class TokenBuckets {
  readonly #options: Required<BucketOptions>
  readonly #tokenUs: number
  readonly #fullAtUs = new Map<string, number>()

  constructor(options: BucketOptions) {
    this.#options = { bucketsMax: 10_000, ...options }
    this.#tokenUs = Math.ceil(1e6 / options.perSecond)
  }

  /** Takes a token. Throws `RateLimitedError` with the wait when there is none. */
  take(name: string): void {
    const waitUs = this.#waitUs(name)
    if (waitUs > 0) throw new RateLimitedError(name, this.#options.perSecond, Math.ceil(waitUs / 1000))
    this.spend(name)
  }

  has(name: string): boolean {
    return this.#waitUs(name) <= 0
  }

  /** Reserves the next token, even a future one. Returns the wait in milliseconds; undefined when it exceeds `waitMsMax`. */
  reserve(name: string, waitMsMax: number): number | undefined {
    const waitMs = Math.max(0, Math.ceil(this.#waitUs(name) / 1000))
    if (waitMs > waitMsMax) return undefined
    this.spend(name)
    return waitMs
  }

  /** Takes tokens even from an empty bucket, up to a debt of one full bucket. */
  spend(name: string, tokens = 1): void {
    const { burstMax, bucketsMax } = this.#options
    const nowUs = this.#nowUs()
    const spentUs = Math.max(nowUs, this.#fullAtUs.get(name) ?? 0) + tokens * this.#tokenUs
    const fullAtUs = Math.min(spentUs, nowUs + 2 * burstMax * this.#tokenUs)
    // Deleted and inserted again: the order of the map is the order of use.
    this.#fullAtUs.delete(name)
    if (this.#fullAtUs.size >= bucketsMax) this.#fullAtUs.delete(this.#fullAtUs.keys().next().value!)
    this.#fullAtUs.set(name, fullAtUs)
  }

  /** Returns an unused token. */
  giveBack(name: string): void {
    const fullAtUs = this.#fullAtUs.get(name)
    if (fullAtUs !== undefined) this.#fullAtUs.set(name, fullAtUs - this.#tokenUs)
  }

  /** Wait for the next token; 0 or less when there is one. */
  #waitUs(name: string): number {
    const nowUs = this.#nowUs()
    const fullAtUs = Math.max(nowUs, this.#fullAtUs.get(name) ?? 0)
    return fullAtUs + this.#tokenUs - nowUs - this.#options.burstMax * this.#tokenUs
  }

  #nowUs(): number {
    return Math.floor(this.#options.now() * 1000)
  }
}

export class RateLimitedError extends ServiceError {
  /** Whose bucket is empty. */
  readonly caller: string
  constructor(caller: string, perSecond: number, waitMs: number) {
    super('rate_limited', `Too many requests: the limit is ${perSecond} per second. Wait a moment and send fewer.`, {
      retryAfterMs: waitMs,
    })
    this.caller = caller
  }
}
