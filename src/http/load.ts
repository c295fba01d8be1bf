import { OverloadedError } from '../errors.ts'

/** How much is being served now, with a limit beyond which requests are shed before they cost anything. */
export class Load {
  readonly #requestsMax: number
  #requests = 0
  #idle: PromiseWithResolvers<void> | undefined

  constructor(requestsMax: number) {
    this.#requestsMax = requestsMax
  }

  get requests(): number {
    return this.#requests
  }

  async during<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#requests >= this.#requestsMax) throw new OverloadedError()
    this.#requests += 1
    try {
      return await work()
    } finally {
      this.#requests -= 1
      if (this.#requests === 0) this.#idle?.resolve()
    }
  }

  /** Resolves when nothing is being served. */
  idle(): Promise<void> {
    if (this.#requests === 0) return Promise.resolve()
    this.#idle ??= Promise.withResolvers<void>()
    return this.#idle.promise
  }
}
