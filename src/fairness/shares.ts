import { OverloadedError, ServiceError } from '../errors.ts'

export type SharesOptions = {
  /** Plural noun for the resource. Customers read it in the refusal. */
  readonly what: string
  readonly capacity: number
  /** An account may always hold this many while there is room, even if its share is smaller. Keeps small pools usable. */
  readonly floor?: number
  /** The most that one account may hold, however much is free. */
  readonly accountMax?: number
}

/**
 * A pool that all accounts share: requests, bytes, threads. No account can exhaust it: each may hold a third of the free part. One
 * account alone gets a quarter of the pool. The more accounts are busy, the smaller each share, so opening more accounts does not
 * exhaust the pool either: five greedy accounts leave three eighths free. An account that holds nothing gets its first place as
 * long as one is free.
 */
export class Shares {
  readonly #options: SharesOptions
  readonly #byAccount = new Map<string, number>()
  #used = 0

  constructor(options: SharesOptions) {
    this.#options = options
  }

  get used(): number {
    return this.#used
  }

  /** @throws {OverloadedError} when the pool is full. @throws {ShareUsedUpError} when the account holds its share. */
  acquire(account: string, amount = 1): void {
    const refusal = this.refusal(account, amount)
    if (refusal !== undefined) throw refusal
    this.add(account, amount)
  }

  /** The error that `acquire` would throw now. */
  refusal(account: string, amount = 1): ServiceError | undefined {
    if (this.isFree(account, amount)) return undefined
    const { what, capacity } = this.#options
    if (this.#used + amount > capacity)
      return new OverloadedError(`The service is at its limit of ${capacity} ${what}.`)
    return new ShareUsedUpError(what, this.#own(account), capacity)
  }

  isFree(account: string, amount = 1): boolean {
    const { capacity, floor = 0, accountMax = capacity } = this.#options
    const own = this.#own(account)
    const free = capacity - this.#used - amount
    const share = Math.min(accountMax, Math.max(floor, Math.floor(free / 3)))
    return free >= 0 && (own === 0 || own + amount <= share)
  }

  /** Takes without a check, even beyond the capacity. The amount counts against later calls. */
  add(account: string, amount: number): void {
    this.#used += amount
    this.#byAccount.set(account, this.#own(account) + amount)
  }

  release(account: string, amount = 1): void {
    const left = this.#own(account) - amount
    if (left < 0) throw new Error(`released ${amount} ${this.#options.what} that were not acquired`)
    this.#used -= amount
    if (left === 0) this.#byAccount.delete(account)
    else this.#byAccount.set(account, left)
  }

  #own(account: string): number {
    return this.#byAccount.get(account) ?? 0
  }
}

const retryAfterMs = 1_000

/** The account already holds its share of a resource that other accounts need too. */
export class ShareUsedUpError extends ServiceError {
  constructor(what: string, own: number, capacity: number) {
    super(
      'rate_limited',
      `This account already uses its share of the service: ${own} of ${capacity} ${what}. Wait until some have ended, then retry. Nothing was charged.`,
      { retryAfterMs },
    )
  }
}
