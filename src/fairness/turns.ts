import { OverloadedError } from '../errors.ts'

/** Lets a few pieces of work run at once; the others wait in order of arrival. */
export class Turns {
  readonly #atOnceMax: number
  readonly #waitingMax: number
  readonly #waiting: (() => void)[] = []
  #running = 0

  constructor(atOnceMax: number, waitingMax = Number.POSITIVE_INFINITY) {
    this.#atOnceMax = atOnceMax
    this.#waitingMax = waitingMax
  }

  /** Throws `OverloadedError` without running the work when too many wait already. */
  async take<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#running < this.#atOnceMax) this.#running += 1
    else {
      if (this.#waiting.length >= this.#waitingMax) throw new OverloadedError()
      // The turn is handed over by whoever ends: `#running` stays the same.
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

/** The same for each account by itself: no account can occupy what all use. */
export class AccountTurns {
  readonly #atOnceMax: number
  readonly #waitingMax: number
  readonly #turns = new Map<string, { readonly turns: Turns; users: number }>()

  constructor(atOnceMax: number, waitingMax: number) {
    this.#atOnceMax = atOnceMax
    this.#waitingMax = waitingMax
  }

  async take<Result>(account: string, work: () => Promise<Result>): Promise<Result> {
    const entry = this.#turns.get(account) ?? { turns: new Turns(this.#atOnceMax, this.#waitingMax), users: 0 }
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
