import { ServiceError } from '../errors.ts'
import { Shares } from '../fairness/shares.ts'

/** A request that is being served. */
export type ServedRequest = {
  /** Called when the service cannot finish the request, with the error for its client. Its handler replaces this function. */
  stop: (reason: ServiceError) => void
  /**
   * Takes one of the account's slots until the request ends. Call it when the body has been read: a slow sender must not occupy
   * a slot.
   */
  begin(): void
}

/** The minimum per account. In a small service a quarter of the slots would be too few. */
const requestsPerAccountMin = 16

/** Requests in progress. Sheds load above a limit, before a request costs anything. */
export class Load {
  readonly #places: Shares
  /** Includes requests whose body is still being read. */
  readonly #requests = new Set<ServedRequest>()
  #idle: PromiseWithResolvers<void> | undefined
  #isStopped = false

  constructor(requestsMax: number) {
    this.#places = new Shares({ what: 'requests in progress', capacity: requestsMax, floor: requestsPerAccountMin })
  }

  /** Requests that have a slot. */
  get requests(): number {
    return this.#places.used
  }

  get isIdle(): boolean {
    return this.#requests.size === 0
  }

  /** Runs `work`; a shutdown waits for it. @throws when the account has no free slot. */
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

  /** Stops all requests in progress and refuses new ones. */
  stop(): void {
    this.#isStopped = true
    for (const request of this.#requests) request.stop(new RestartingError())
  }

  /** Resolves when no request is in progress. */
  idle(): Promise<void> {
    if (this.#requests.size === 0) return Promise.resolve()
    this.#idle ??= Promise.withResolvers<void>()
    return this.#idle.promise
  }
}

/** The service is shutting down. The client is still connected, so this is not a cancellation. */
export class RestartingError extends ServiceError {
  constructor() {
    super('overloaded', 'The service is restarting and could not finish this request. Try again in a moment.', {
      retryAfterMs: 2_000,
    })
  }
}
