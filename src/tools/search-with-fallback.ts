import { setTimeout as sleep } from 'node:timers/promises'
import { FairConcurrencyLimit } from '../fairness/fair-concurrency-limit.ts'
import { connectionsMax } from './providers/ask.ts'
import { ProviderError, type SearchProvider } from './providers/provider.ts'
import { SearchFailedError, type SearchResult, type WebSearch } from './web-search.ts'

export type SearchWithFallbackOptions = {
  /** In order of preference, at least one. */
  readonly providers: readonly SearchProvider[]
  /** For the operator's log: without it a working fallback would hide a failing provider. */
  readonly onFailure: (error: ProviderError) => void
  readonly totalMsMax?: number
  /** Milliseconds. */
  readonly now?: () => number
}

const totalMsMaxDefault = 20_000
const pauseMs = 250
const pauseMsMax = 1_500
// A provider that does not answer takes 8 s of each search.
const failuresInRowMax = 3
const restMs = 30_000

/**
 * Tries the providers in order, except that those which failed three times in a row are tried last for 30 seconds. When all have failed,
 * retries the first one whose error was temporary, once.
 */
export function searchWithFallback(options: SearchWithFallbackOptions): WebSearch {
  const { onFailure, totalMsMax, now = () => performance.now() } = options
  const providers = options.providers.map((provider) => new RestingProvider(provider, now))
  // As many searches as a provider has connections: behind them the HTTP client would queue, for all accounts alike, while the search's
  // timeout runs.
  const limit = new FairConcurrencyLimit({ concurrentMax: connectionsMax, accountConcurrentMin: 4, waitingMax: 512 })
  return {
    async search(query, signal, account, halted = signal) {
      const late = AbortSignal.timeout(totalMsMax ?? totalMsMaxDefault)
      try {
        using turn = await limit.enter(account, AbortSignal.any([signal, late]))
        signal.throwIfAborted()
        if (turn === undefined) throw new SearchFailedError(unavailable)
        const ordered = providers.toSorted((one, other) => Number(one.isResting) - Number(other.isResting))
        const ask = (provider: SearchProvider) => provider.search(query, AbortSignal.any([halted, late]))
        return await askProviders(ordered, ask, signal, onFailure)
      } catch (error) {
        signal.throwIfAborted()
        if (error instanceof SearchFailedError) throw error
        if (error instanceof ProviderError || late.aborted) throw new SearchFailedError(unavailable)
        throw error
      }
    },
  }
}

/** A provider that rests after temporary failures in a row. */
class RestingProvider implements SearchProvider {
  readonly name: string
  readonly #provider: SearchProvider
  readonly #now: () => number
  #failuresInRow = 0
  #restUntilMs = Number.NEGATIVE_INFINITY

  constructor(provider: SearchProvider, now: () => number) {
    this.name = provider.name
    this.#provider = provider
    this.#now = now
  }

  get isResting(): boolean {
    return this.#now() < this.#restUntilMs
  }

  async search(query: string, signal: AbortSignal): Promise<readonly SearchResult[]> {
    try {
      const results = await this.#provider.search(query, signal)
      this.#failuresInRow = 0
      this.#restUntilMs = Number.NEGATIVE_INFINITY
      return results
    } catch (error) {
      if (error instanceof ProviderError && error.temporary) {
        this.#failuresInRow += 1
        if (this.#failuresInRow >= failuresInRowMax) this.#restUntilMs = this.#now() + restMs
      }
      throw error
    }
  }
}

const unavailable = 'The web search is not available at the moment.'

async function askProviders(
  providers: readonly SearchProvider[],
  ask: (provider: SearchProvider) => Promise<readonly SearchResult[]>,
  signal: AbortSignal,
  onFailure: (error: ProviderError) => void,
): Promise<readonly SearchResult[]> {
  let again: { readonly provider: SearchProvider; readonly error: ProviderError } | undefined
  for (const provider of providers) {
    try {
      return await ask(provider)
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error
      onFailure(error)
      signal.throwIfAborted()
      // A provider whose Retry-After is longer than `pauseMsMax` is not retried.
      if (error.temporary && (error.retryAfterMs ?? 0) <= pauseMsMax) again ??= { provider, error }
    }
  }
  if (again === undefined) throw new SearchFailedError(unavailable)
  await sleep(again.error.retryAfterMs ?? pauseMs, undefined, { signal })
  return ask(again.provider)
}
