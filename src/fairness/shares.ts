import { OverloadedError, ServiceError } from '../errors.ts'

export type SharesOptions = {
  /** What is shared, in the plural, for the message of a refusal. */
  readonly what: string
  readonly capacity: number
  /** An account may take so many while there is room, whatever its share is. Keeps small pools usable. */
  readonly floor?: number
  /** An account never gets more, whatever is free. */
  readonly accountMax?: number
}

/**
 * A number of places that all customers share: requests, bytes, threads. No account may take so many that others find none:
 * each may hold a third of what is free. One account alone gets a quarter of all; the more accounts are busy, the
 * smaller the share, so that opening more accounts does not exhaust the pool either: five greedy ones leave three eighths free.
 * An account that holds nothing gets the first place as long as there is one.
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

  /** @throws {OverloadedError} when there is no room. @throws {ShareUsedUpError} when the account has its share. */
  acquire(account: string, amount = 1): void {
    const refusal = this.refusal(account, amount)
    if (refusal !== undefined) throw refusal
    this.add(account, amount)
  }

  /** What `acquire` would throw now. */
  refusal(account: string, amount = 1): ServiceError | undefined {
    const { what, capacity, floor = 0, accountMax = capacity } = this.#options
    const own = this.#byAccount.get(account) ?? 0
    const free = capacity - this.#used - amount
    if (free < 0) return new OverloadedError(`The service is at its limit of ${capacity} ${what}.`)
    const share = Math.min(accountMax, Math.max(floor, Math.floor(free / 3)))
    return own === 0 || own + amount <= share ? undefined : new ShareUsedUpError(what, own, capacity)
  }

  /** Takes without asking. It counts all the same. */
  add(account: string, amount: number): void {
    this.#used += amount
    this.#byAccount.set(account, (this.#byAccount.get(account) ?? 0) + amount)
  }

  release(account: string, amount = 1): void {
    const left = (this.#byAccount.get(account) ?? 0) - amount
    if (left < 0) throw new Error(`${amount} ${this.#options.what} were released that were not taken`)
    this.#used -= amount
    if (left === 0) this.#byAccount.delete(account)
    else this.#byAccount.set(account, left)
  }
}

const retryAfterMs = 1_000

/** One account uses as much of a shared resource as it may while others need it too. */
export class ShareUsedUpError extends ServiceError {
  readonly code = 'rate_limited'
  constructor(what: string, own: number, capacity: number) {
    super(
      `This account already uses its share of the service: ${own} of ${capacity} ${what}. Wait until some have ended, then retry. Nothing was held.`,
      { retryAfterMs },
    )
  }
}
