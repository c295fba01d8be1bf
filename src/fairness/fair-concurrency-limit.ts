import { FairQueue } from './fair-queue.ts'
import { Shares, type SharesOptions } from './shares.ts'

type Waiting = { readonly account: string; readonly begin: () => void }

/**
 * Limits how many pieces of work run concurrently; the others wait, and accounts take turns: a backlog of one delays another by one
 * piece of work (`ConcurrencyLimit` is first come, first served). The places to wait are limited and shared between accounts.
 */
export class FairConcurrencyLimit {
  readonly #concurrentMax: number
  readonly #places: Shares
  readonly #waiting = new FairQueue<Waiting>(1)
  #running = 0

  constructor(concurrentMax: number, places: SharesOptions) {
    this.#concurrentMax = concurrentMax
    this.#places = new Shares(places)
  }

  /**
   * Waits for a turn; dispose of it when the work has ended. Undefined when the account gets no place to wait. Rejects with the signal's
   * reason when it aborts first.
   */
  async enter(account: string, signal: AbortSignal): Promise<Disposable | undefined> {
    signal.throwIfAborted()
    if (this.#places.refusal(account) !== undefined) return undefined
    const turn = Promise.withResolvers<void>()
    const waiting = { account, begin: turn.resolve }
    const leave = () => {
      if (this.#waiting.remove(account, waiting)) this.#places.release(account)
      turn.reject(signal.reason)
    }
    this.#places.acquire(account)
    this.#waiting.push(account, waiting)
    signal.addEventListener('abort', leave, { once: true })
    this.#next()
    await turn.promise
    return {
      [Symbol.dispose]: () => {
        this.#running -= 1
        this.#next()
      },
    }
  }

  #next(): void {
    if (this.#running >= this.#concurrentMax) return
    const waiting = this.#waiting.peek()
    if (waiting === undefined) return
    this.#waiting.served(1, true)
    this.#places.release(waiting.account)
    this.#running += 1
    waiting.begin()
  }
}
