import { setTimeout as sleep } from 'node:timers/promises'
import { FairQueue } from '../fairness/fair-queue.ts'
import { Shares } from '../fairness/shares.ts'
import { connectionsMax } from './providers/ask.ts'
import { ProviderError, type SearchProvider } from './providers/provider.ts'
import { queryCharactersMax, SearchFailedError, type SearchResult, type WebSearch } from './web-search.ts'

export type SearchInTurnOptions = {
  /** In order of preference, at least one. */
  readonly providers: readonly SearchProvider[]
  /** For the operator's log: without it a working fallback would hide a failing provider. */
  readonly onFailure: (error: ProviderError) => void
  readonly totalMsMax?: number
}

const totalMsMaxDefault = 20_000
const pauseMs = 250
const pauseMsMax = 1_500
const waitingMax = 512
const waitingPerAccountMin = 4

/** Tries the providers in order. When all have failed, retries the first one whose error was temporary, once. */
export function searchInTurn({ providers, onFailure, totalMsMax }: SearchInTurnOptions): WebSearch {
  const queue = new SearchQueue()
  return {
    async search(query, signal, account) {
      const words = query.trim().slice(0, queryCharactersMax)
      if (words === '') throw new SearchFailedError('The search needs a query.')
      const late = AbortSignal.timeout(totalMsMax ?? totalMsMaxDefault)
      try {
        const both = AbortSignal.any([signal, late])
        using _place = await queue.enter(account, both)
        return await askInTurn(providers, words, both, onFailure)
      } catch (error) {
        signal.throwIfAborted()
        if (error instanceof SearchFailedError) throw error
        if (error instanceof ProviderError || late.aborted) throw new SearchFailedError(unavailable)
        throw error
      }
    },
  }
}

const unavailable = 'The web search is not available at the moment.'

async function askInTurn(
  providers: readonly SearchProvider[],
  query: string,
  signal: AbortSignal,
  onFailure: (error: ProviderError) => void,
): Promise<readonly SearchResult[]> {
  let again: { readonly provider: SearchProvider; readonly error: ProviderError } | undefined
  for (const provider of providers) {
    try {
      return await provider.search(query, signal)
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error
      onFailure(error)
      // A provider whose Retry-After is longer than `pauseMsMax` is not retried.
      if (error.temporary && (error.retryAfterMs ?? 0) <= pauseMsMax) again ??= { provider, error }
    }
  }
  if (again === undefined) throw new SearchFailedError(unavailable)
  await sleep(again.error.retryAfterMs ?? pauseMs, undefined, { signal })
  return again.provider.search(query, signal)
}

type Waiting = { readonly account: string; readonly enter: () => void }

/**
 * Runs as many searches at a time as a provider has connections: behind them the HTTP client would queue, for all accounts alike, while
 * the search's timeout runs. Another account's searches delay a search by one turn.
 */
class SearchQueue {
  readonly #waiting = new FairQueue<Waiting>(1)
  readonly #places = new Shares({
    what: 'searches that wait',
    capacity: waitingMax,
    floor: waitingPerAccountMin,
  })
  #running = 0

  /** Waits for a turn. Dispose of the result when the search has ended. */
  async enter(account: string, signal: AbortSignal): Promise<Disposable> {
    signal.throwIfAborted()
    if (this.#places.refusal(account) !== undefined) throw new SearchFailedError(unavailable)
    const turn = Promise.withResolvers<void>()
    const waiting = { account, enter: turn.resolve }
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
    if (this.#running >= connectionsMax) return
    const waiting = this.#waiting.peek()
    if (waiting === undefined) return
    this.#waiting.served(1, true)
    this.#places.release(waiting.account)
    this.#running += 1
    waiting.enter()
  }
}
