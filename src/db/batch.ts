import { setTimeout as sleep } from 'node:timers/promises'
import { OverloadedError } from '../errors.ts'

export type BatchOptions<Call, Result> = {
  /** Runs the calls as one transaction and answers them in their order. Must be safe to repeat: see `isOutcomeUnknown`. */
  readonly run: (calls: readonly Call[]) => Promise<readonly Result[]>
  /** True when a failed run may have been committed all the same. Then the same calls are run again. */
  readonly isOutcomeUnknown: (error: unknown) => boolean
  readonly sizeMax?: number
  readonly queuedMax?: number
  /** 0 or 1. Calls of different lanes touch different rows, so batches of both may be committed at the same time. */
  readonly laneOf?: (call: Call) => number
}

// A commit costs the database a fixed part however few calls share it. Only what is plenty is worth two of them at once.
const plenty = 128

const pauseMsMin = 20
const pauseMsMax = 500

/**
 * Group commit. Calls that arrive while a batch is being committed form the next one, so a durable commit is shared by
 * hundreds of requests under load, and an idle service commits at once: batching adds no wait. When there is plenty, two
 * batches are under way at once where calls have lanes.
 */
export class BatchQueue<Call, Result> {
  readonly #options: Required<BatchOptions<Call, Result>>
  readonly #lanes: readonly Lane<Call, Result>[] = [
    { queued: [], busy: false },
    { queued: [], busy: false },
  ]
  #scheduled = false
  #idle: PromiseWithResolvers<void> | undefined
  #stopped = false

  constructor(options: BatchOptions<Call, Result>) {
    this.#options = { sizeMax: 512, queuedMax: 16_384, laneOf: () => 0, ...options }
  }

  add(call: Call): Promise<Result> {
    if (this.queued >= this.#options.queuedMax) return Promise.reject(new OverloadedError())
    const { promise, resolve, reject } = Promise.withResolvers<Result>()
    this.#lanes[this.#options.laneOf(call)]!.queued.push({ call, resolve, reject })
    this.#schedule()
    return promise
  }

  /** Calls that wait for a batch. */
  get queued(): number {
    return this.#lanes.reduce((sum, { queued }) => sum + queued.length, 0)
  }

  /** Resolves when nothing is queued or in flight. */
  drained(): Promise<void> {
    if (this.#isIdle()) return Promise.resolve()
    this.#idle ??= Promise.withResolvers<void>()
    return this.#idle.promise
  }

  /** Gives up what the database does not answer: for the end of the process, whose successor will look after it. */
  stop(): void {
    this.#stopped = true
  }

  #isIdle(): boolean {
    return this.#lanes.every(({ queued, busy }) => queued.length === 0 && !busy)
  }

  // One turn of the event loop gathers the requests that were read from their sockets together.
  #schedule(): void {
    if (this.#scheduled || this.#lanesToTake().length === 0) return
    this.#scheduled = true
    setImmediate(() => {
      this.#scheduled = false
      this.#begin(this.#lanesToTake())
      this.#schedule()
    })
  }

  /** The lanes of which the next batch takes its calls: all of them, or one when there is plenty. None: it is not time yet. */
  #lanesToTake(): readonly Lane<Call, Result>[] {
    const isBusy = this.#lanes.some(({ busy }) => busy)
    if (!isBusy && this.queued < plenty) return this.#lanes.filter(({ queued }) => queued.length > 0)
    const least = isBusy ? plenty / 2 : 1
    return this.#lanes.filter(({ queued, busy }) => !busy && queued.length >= least).slice(0, 1)
  }

  #begin(lanes: readonly Lane<Call, Result>[]): void {
    const entries: Entry<Call, Result>[] = []
    for (const lane of lanes) {
      entries.push(...lane.queued.splice(0, this.#options.sizeMax - entries.length))
      lane.busy = true
    }
    this.#commit(entries).finally(() => {
      for (const lane of lanes) lane.busy = false
      this.#schedule()
      if (this.#isIdle()) {
        this.#idle?.resolve()
        this.#idle = undefined
      }
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

  // For ever: of a call whose outcome is unknown nothing but an answer tells. Who cannot wait goes away, not the call.
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

type Lane<Call, Result> = {
  readonly queued: Entry<Call, Result>[]
  /** A batch with calls of this lane is being committed. */
  busy: boolean
}
