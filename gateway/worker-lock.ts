import { setTimeout as sleep } from 'node:timers/promises'
import { type Exclusive, tryExclusive } from '../src/db/exclusive.ts'

export type WorkerLockOptions = {
  readonly url: string
  readonly retryMs: number
}

/**
 * Of several gateways on one database, one works and the others only serve. When it dies or is unreachable, another takes over. If
 * the old one has not noticed yet, the database's constraints keep two workers from sending two calls.
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

  /** Tries to take the lock now and repeatedly until it succeeds, and again whenever it is lost. */
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
    // An unreachable database is retried, like a lock that is held.
    const held = await tryExclusive(this.#options.url, 'gateway').catch(() => undefined)
    this.#held = held
    void held?.lost.then(() => {
      this.#held = undefined
    })
  }
}
