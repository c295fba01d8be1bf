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
