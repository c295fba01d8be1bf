import { FairQueue } from './fair-queue.ts'
import { Shares } from './shares.ts'

export type FairConcurrencyLimitOptions = {
  /** Pieces of work that run concurrently. */
  readonly concurrentMax: number
  /** An account may always run this many while there is room, even if its share (`Shares`) is smaller. */
  readonly accountConcurrentMin: number
  /** Pieces of work that wait for their turn. Accounts share these places too. */
  readonly waitingMax: number
}

type Waiting = { readonly account: string; readonly begin: (turn: Disposable) => void }

const accountWaitingMin = 4

/**
 * Limits how many pieces of work run concurrently; the others wait. Accounts take turns and share the places, so one with a backlog
 * or with slow work neither delays the others much nor takes all the places (`ConcurrencyLimit` is first come, first served).
 */
export class FairConcurrencyLimit {
  readonly #running: Shares
  readonly #waiting: Shares
  readonly #queue = new FairQueue<Waiting>(1)

  constructor({ concurrentMax, accountConcurrentMin, waitingMax }: FairConcurrencyLimitOptions) {
    this.#running = new Shares({ what: 'pieces of work', capacity: concurrentMax, floor: accountConcurrentMin })
    this.#waiting = new Shares({ what: 'waiting pieces of work', capacity: waitingMax, floor: accountWaitingMin })
  }

  /**
   * Waits for a turn; dispose of it when the work has ended. Undefined when the account gets no place to wait, or the signal aborts
   * first.
   */
  async enter(account: string, signal: AbortSignal): Promise<Disposable | undefined> {
    if (signal.aborted || !this.#waiting.isFree(account)) return undefined
    const turn = Promise.withResolvers<Disposable | undefined>()
    const waiting = { account, begin: turn.resolve }
    const leave = () => {
      if (this.#queue.remove(account, waiting)) this.#waiting.release(account)
      turn.resolve(undefined)
    }
    this.#waiting.add(account, 1)
    this.#queue.push(account, waiting)
    signal.addEventListener('abort', leave, { once: true })
    this.#beginNext()
    return turn.promise.finally(() => signal.removeEventListener('abort', leave))
  }

  #beginNext(): void {
    const mayBegin = (account: string) => this.#running.isFree(account)
    for (let next = this.#queue.peek(mayBegin); next !== undefined; next = this.#queue.peek(mayBegin)) {
      const { account, begin } = next
      this.#queue.served(account, 1, true)
      this.#waiting.release(account)
      this.#running.add(account, 1)
      begin({
        [Symbol.dispose]: () => {
          this.#running.release(account)
          this.#beginNext()
        },
      })
    }
  }
}
