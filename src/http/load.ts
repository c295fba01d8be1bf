import { OverloadedError, ServiceError } from '../errors.ts'

/** How much is being served now, with a limit beyond which requests are shed before they cost anything. */
export class Load {
  readonly #requestsMax: number
  readonly #requests = new Set<AbortController>()
  #idle: PromiseWithResolvers<void> | undefined
  #isStopped = false

  constructor(requestsMax: number) {
    this.#requestsMax = requestsMax
  }

  get requests(): number {
    return this.#requests.size
  }

  /** `stopped` aborts when the work can no longer be finished, with the error that its client is to be told. */
  async during<Result>(work: (stopped: AbortSignal) => Promise<Result>): Promise<Result> {
    if (this.#isStopped) throw new RestartingError()
    if (this.requests >= this.#requestsMax) throw new OverloadedError()
    const request = new AbortController()
    this.#requests.add(request)
    try {
      return await work(request.signal)
    } finally {
      this.#requests.delete(request)
      if (this.requests === 0) {
        this.#idle?.resolve()
        this.#idle = undefined
      }
    }
  }

  /** Ends what is being served, and takes nothing more. */
  stop(): void {
    this.#isStopped = true
    for (const request of this.#requests) request.abort(new RestartingError())
  }

  /** Resolves when nothing is being served. */
  idle(): Promise<void> {
    if (this.requests === 0) return Promise.resolve()
    this.#idle ??= Promise.withResolvers<void>()
    return this.#idle.promise
  }
}

/** The service goes, and comes back or has others beside it. Nobody's fault but ours: who is told this has not left. */
export class RestartingError extends ServiceError {
  readonly code = 'overloaded'
  constructor() {
    super('The service is restarting and could not finish this request. Ask again in a moment.', {
      retryAfterMs: 2_000,
    })
  }
}
