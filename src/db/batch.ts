import { setTimeout as sleep } from 'node:timers/promises'
import { OverloadedError } from '../errors.ts'

export type BatchOptions<Call, Result> = {
  /** Runs the calls as one transaction and answers them in their order. Must be safe to repeat: see `isOutcomeUnknown`. */
  readonly run: (calls: readonly Call[]) => Promise<readonly Result[]>
  /** True when a failed run may have been committed all the same. Then the same calls are run again. */
  readonly isOutcomeUnknown: (error: unknown) => boolean
  readonly sizeMax?: number
  readonly inFlightMax?: number
  readonly queuedMax?: number
}

const pauseMsMin = 20
const pauseMsMax = 500

/**
 * Group commit. Calls that arrive while a batch is being committed form the next one, so a durable commit is shared by
 * hundreds of requests under load, and an idle service commits at once: batching adds no wait.
 */
export class BatchQueue<Call, Result> {
  readonly #options: Required<BatchOptions<Call, Result>>
  #queued: Entry<Call, Result>[] = []
  #inFlight = 0
  #scheduled = false
  #idle: PromiseWithResolvers<void> | undefined
  #stopped = false

  constructor(options: BatchOptions<Call, Result>) {
    this.#options = { sizeMax: 512, inFlightMax: 1, queuedMax: 16_384, ...options }
  }

  add(call: Call): Promise<Result> {
    if (this.#queued.length >= this.#options.queuedMax) return Promise.reject(new OverloadedError())
    const { promise, resolve, reject } = Promise.withResolvers<Result>()
    this.#queued.push({ call, resolve, reject })
    this.#schedule()
    return promise
  }

  /** Calls that wait for a batch. */
  get queued(): number {
    return this.#queued.length
  }

  /** Resolves when nothing is queued or in flight. */
  drained(): Promise<void> {
    if (this.#queued.length === 0 && this.#inFlight === 0) return Promise.resolve()
    this.#idle ??= Promise.withResolvers<void>()
    return this.#idle.promise
  }

  /** Gives up what the database does not answer: for the end of the process, whose successor will look after it. */
  stop(): void {
    this.#stopped = true
  }

  // One turn of the event loop gathers the requests that were read from their sockets together.
  #schedule(): void {
    if (this.#scheduled || this.#inFlight >= this.#options.inFlightMax || this.#queued.length === 0) return
    this.#scheduled = true
    setImmediate(() => {
      this.#scheduled = false
      const entries = this.#queued.splice(0, this.#options.sizeMax)
      this.#inFlight += 1
      this.#commit(entries).finally(() => {
        this.#inFlight -= 1
        this.#schedule()
        if (this.#queued.length === 0 && this.#inFlight === 0) {
          this.#idle?.resolve()
          this.#idle = undefined
        }
      })
      this.#schedule()
    })
  }

  async #commit(entries: readonly Entry<Call, Result>[]): Promise<void> {
    try {
      const results = await this.#runRepeatedly(entries.map((entry) => entry.call))
      for (const [index, entry] of entries.entries()) entry.resolve(results[index] as Result)
    } catch (error) {
      if (entries.length === 1 || this.#options.isOutcomeUnknown(error) || this.#stopped) {
        for (const entry of entries) entry.reject(error)
        return
      }
      // One bad row must fail alone: run them one by one.
      for (const entry of entries) await this.#commit([entry])
    }
  }

  // For ever: a call whose outcome is unknown is settled by nothing but an answer. Who cannot wait goes away, not the call.
  async #runRepeatedly(calls: readonly Call[]): Promise<readonly Result[]> {
    for (let pauseMs = pauseMsMin; ; pauseMs = Math.min(pauseMs * 2, pauseMsMax)) {
      try {
        return await this.#options.run(calls)
      } catch (error) {
        if (this.#stopped || !this.#options.isOutcomeUnknown(error)) throw error
        await sleep(pauseMs)
      }
    }
  }
}

type Entry<Call, Result> = {
  readonly call: Call
  readonly resolve: (result: Result) => void
  readonly reject: (error: unknown) => void
}
