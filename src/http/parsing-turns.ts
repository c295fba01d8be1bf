/** An account pauses this many times as long as its parsing took. */
const restFactor = 3

/**
 * Parsing a body of several megabytes blocks the event loop for dozens of milliseconds, before the request is paid for. So the large
 * bodies of an account are parsed one at a time, with a pause of three times the parsing time after each: one account gets at most a
 * quarter of the event loop.
 */
export class ParsingTurns {
  readonly #now: () => number
  /** Has an entry for every account that parses or pauses: its waiting bodies. */
  readonly #waiting = new Map<string, (() => void)[]>()

  /** `now` in milliseconds. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** Resolves when it is the account's turn. The turn ends with the current turn of the event loop. */
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
