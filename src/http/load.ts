import { ServiceError } from '../errors.ts'
import { Shares } from '../fairness/shares.ts'

/** One of those that are being served. */
export type ServedRequest = {
  /** Called when it can no longer be finished, with what its client is to be told. Whoever serves it puts in what that does. */
  stop: (reason: ServiceError) => void
  /**
   * Takes one of the account's places until the request is over. Called once its body is there: a client that sends slowly, or
   * nothing more, must not keep a place from others.
   */
  begin(): void
}

/** So many requests an account may have in progress in a small service, where a quarter of the places would be too few. */
const requestsPerAccountMin = 16

/** How much is being served now, with a limit beyond which requests are shed before they cost anything. */
export class Load {
  readonly #places: Shares
  /** Also those whose body is being read. */
  readonly #requests = new Set<ServedRequest>()
  #idle: PromiseWithResolvers<void> | undefined
  #isStopped = false

  constructor(requestsMax: number) {
    this.#places = new Shares({ what: 'requests in progress', capacity: requestsMax, floor: requestsPerAccountMin })
  }

  /** Requests that have a place. */
  get requests(): number {
    return this.#places.used
  }

  /** Whether nothing is being served. */
  get isIdle(): boolean {
    return this.#requests.size === 0
  }

  /** Waits for the work, which the service is not stopped without. @throws when there would be no place for the account now. */
  async during<Result>(account: string, work: (request: ServedRequest) => Promise<Result>): Promise<Result> {
    if (this.#isStopped) throw new RestartingError()
    const refusal = this.#places.refusal(account)
    if (refusal !== undefined) throw refusal
    let hasPlace = false
    const request: ServedRequest = {
      stop() {},
      begin: () => {
        this.#places.acquire(account)
        hasPlace = true
      },
    }
    this.#requests.add(request)
    try {
      return await work(request)
    } finally {
      if (hasPlace) this.#places.release(account)
      this.#requests.delete(request)
      if (this.#requests.size === 0) {
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
    if (this.#requests.size === 0) return Promise.resolve()
    this.#idle ??= Promise.withResolvers<void>()
    return this.#idle.promise
  }
}

/** The service goes, and comes back or has others beside it. Nobody's fault but ours: who is told this has not left. */
export class RestartingError extends ServiceError {
  readonly code = 'overloaded'
  constructor() {
    super('The service is restarting and could not finish this request. Try again in a moment.', {
      retryAfterMs: 2_000,
    })
  }
}
