import { OverloadedError } from '../errors.ts'

/** Limits how many pieces of work run concurrently; the others wait, first come, first served. */
export class ConcurrencyLimit {
  readonly #concurrentMax: number
  readonly #waitingMax: number
  readonly #waiting: (() => void)[] = []
  #running = 0

  constructor(concurrentMax: number, waitingMax = Number.POSITIVE_INFINITY) {
    this.#concurrentMax = concurrentMax
    this.#waitingMax = waitingMax
  }

  /** Throws `OverloadedError` without running the work when too many wait already. */
  async run<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#running < this.#concurrentMax) this.#running += 1
    else {
      if (this.#waiting.length >= this.#waitingMax) throw new OverloadedError()
      // The work that ends passes its place on directly, so `#running` does not change.
      await new Promise<void>((resolve) => this.#waiting.push(resolve))
    }
    try {
      return await work()
    } finally {
      const next = this.#waiting.shift()
      if (next === undefined) this.#running -= 1
      else next()
    }
  }
}

/** One `ConcurrencyLimit` per account: an account waits only for its own work. */
export class AccountConcurrencyLimits {
  readonly #concurrentMax: number
  readonly #waitingMax: number
  readonly #limits = new Map<string, { readonly limit: ConcurrencyLimit; users: number }>()

  constructor(concurrentMax: number, waitingMax: number) {
    this.#concurrentMax = concurrentMax
    this.#waitingMax = waitingMax
  }

  async run<Result>(account: string, work: () => Promise<Result>): Promise<Result> {
    const entry = this.#limits.get(account) ?? {
      limit: new ConcurrencyLimit(this.#concurrentMax, this.#waitingMax),
      users: 0,
    }
    this.#limits.set(account, entry)
    entry.users += 1
    try {
      return await entry.limit.run(work)
    } finally {
      entry.users -= 1
      if (entry.users === 0) this.#limits.delete(account)
    }
  }
}
