import { OverloadedError, ServiceError } from '../errors.ts'

/** One of those that are being served. */
export type ServedRequest = {
  /** Called when it can no longer be finished, with what its client is to be told. Whoever serves it puts in what that does. */
  stop: (reason: ServiceError) => void
}

/** How much is being served now, with a limit beyond which requests are shed before they cost anything. */
export class Load {
  readonly #requestsMax: number
  readonly #requests = new Set<ServedRequest>()
  #idle: PromiseWithResolvers<void> | undefined
  #isStopped = false

  constructor(requestsMax: number) {
    this.#requestsMax = requestsMax
  }

  get requests(): number {
    return this.#requests.size
  }

  async during<Result>(work: (request: ServedRequest) => Promise<Result>): Promise<Result> {
    if (this.#isStopped) throw new RestartingError()
    if (this.requests >= this.#requestsMax) throw new OverloadedError()
    const request: ServedRequest = { stop() {} }
    this.#requests.add(request)
    try {
      return await work(request)
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
    for (const request of this.#requests) request.stop(new RestartingError())
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
