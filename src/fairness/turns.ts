import { OverloadedError } from '../errors.ts'

/** Limits how many pieces of work run concurrently; the others wait in order of arrival. */
export class Turns {
  readonly #concurrentMax: number
  readonly #waitingMax: number
  readonly #waiting: (() => void)[] = []
  #running = 0

  constructor(concurrentMax: number, waitingMax = Number.POSITIVE_INFINITY) {
    this.#concurrentMax = concurrentMax
    this.#waitingMax = waitingMax
  }

  /** Throws `OverloadedError` without running the work when too many wait already. */
  async take<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#running < this.#concurrentMax) this.#running += 1
    else {
      if (this.#waiting.length >= this.#waitingMax) throw new OverloadedError()
      // The work that ends hands its turn over directly, so `#running` does not change.
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

/** The same limit for each account separately: one account cannot occupy a shared resource. */
export class AccountTurns {
  readonly #concurrentMax: number
  readonly #waitingMax: number
  readonly #turns = new Map<string, { readonly turns: Turns; users: number }>()

  constructor(concurrentMax: number, waitingMax: number) {
    this.#concurrentMax = concurrentMax
    this.#waitingMax = waitingMax
  }

  async take<Result>(account: string, work: () => Promise<Result>): Promise<Result> {
    const entry = this.#turns.get(account) ?? { turns: new Turns(this.#concurrentMax, this.#waitingMax), users: 0 }
    this.#turns.set(account, entry)
    entry.users += 1
    try {
      return await entry.turns.take(work)
    } finally {
      entry.users -= 1
      if (entry.users === 0) this.#turns.delete(account)
    }
  }
}
