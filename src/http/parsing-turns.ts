/** An account rests so many times as long as it parsed. */
const restFactor = 3

/**
 * Parsing a body of megabytes takes the event loop for dozens of milliseconds, and nobody has paid for it yet. An account has its
 * large bodies parsed one after the other, and rests three times as long as each took: a quarter of the loop's time at most.
 */
export class ParsingTurns {
  readonly #now: () => number
  /** Of accounts that parse or rest: those that wait for it. */
  readonly #waiting = new Map<string, (() => void)[]>()

  /** `now` in milliseconds. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** Resolves when it is the account's turn. It lasts until the event loop goes on. */
  async wait(account: string): Promise<void> {
    const waiting = this.#waiting.get(account)
    if (waiting === undefined) {
      this.#waiting.set(account, [])
      return this.#begin(account)
    }
    await new Promise<void>((resolve) => {
      waiting.push(resolve)
    })
  }

  #begin(account: string): void {
    const beganMs = this.#now()
    setImmediate(() => setTimeout(() => this.#next(account), restFactor * (this.#now() - beganMs)))
  }

  #next(account: string): void {
    const next = this.#waiting.get(account)?.shift()
    if (next === undefined) {
      this.#waiting.delete(account)
      return
    }
    this.#begin(account)
    next()
  }
}
