/** Reasons why the service cannot serve, by name; empty when it is ready. */
export type Problems = Readonly<Record<string, string>>

export type ReadinessOptions = {
  readonly look: () => Promise<Problems>
  readonly onError: (error: unknown) => void
  /** Monotonic milliseconds. */
  readonly now: () => number
}

const keptMs = 1_000

/**
 * Whether the service can serve. Public, so the database is asked at most once a second, one query at a time, and its own error
 * messages go to the log only.
 */
export class Readiness {
  readonly #options: ReadinessOptions
  #looking: Promise<Problems> | undefined
  #found: Problems = {}
  #foundMs = Number.NEGATIVE_INFINITY

  constructor(options: ReadinessOptions) {
    this.#options = options
  }

  async problems(): Promise<Problems> {
    if (this.#options.now() - this.#foundMs < keptMs) return this.#found
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined
    })
    return this.#looking
  }

  async #look(): Promise<Problems> {
    try {
      this.#found = await this.#options.look()
    } catch (error) {
      this.#options.onError(error)
      this.#found = { database: 'the database does not answer' }
    }
    this.#foundMs = this.#options.now()
    return this.#found
  }
}
