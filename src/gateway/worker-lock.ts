import { setTimeout as sleep } from 'node:timers/promises'
import { type Exclusive, tryExclusive } from '../db/exclusive.ts'

export type WorkerLockOptions = {
  readonly url: string
  readonly retryMs: number
}

/**
 * Of several gateways on one database one works, the others serve; when it dies, or cannot be reached, another takes over.
 * Should the old one not have noticed, the database's own constraints keep two workers from sending two things.
 */
export class WorkerLock {
  readonly #options: WorkerLockOptions
  readonly #stop = new AbortController()
  #held: Exclusive | undefined
  #keeping: Promise<void> | undefined

  constructor(options: WorkerLockOptions) {
    this.#options = options
  }

  get isHeld(): boolean {
    return this.#held !== undefined
  }

  /** Tries now, and from then on until it has the lock, and again whenever it is lost. */
  async start(): Promise<void> {
    await this.#try()
    this.#keeping = this.#keep()
  }

  async stop(): Promise<void> {
    this.#stop.abort()
    await this.#keeping
    await this.#held?.release()
  }

  async #keep(): Promise<void> {
    const { signal } = this.#stop
    while (!signal.aborted) {
      await sleep(this.#options.retryMs, undefined, { signal }).catch(() => {})
      if (!signal.aborted && this.#held === undefined) await this.#try()
    }
  }

  async #try(): Promise<void> {
    // A database that does not answer now is asked again like one that says no.
    const held = await tryExclusive(this.#options.url, 'gateway').catch(() => undefined)
    this.#held = held
    void held?.lost.then(() => {
      this.#held = undefined
    })
  }
}
