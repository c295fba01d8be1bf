import { setTimeout as sleep } from 'node:timers/promises'
import { FairConcurrencyLimit } from '../fairness/fair-concurrency-limit.ts'
import { connectionsMax } from './providers/ask.ts'
import { ProviderError, type SearchProvider } from './providers/provider.ts'
import { queryCharactersMax, SearchFailedError, type SearchResult, type WebSearch } from './web-search.ts'

export type SearchWithFallbackOptions = {
  /** In order of preference, at least one. */
  readonly providers: readonly SearchProvider[]
  /** For the operator's log: without it a working fallback would hide a failing provider. */
  readonly onFailure: (error: ProviderError) => void
  readonly totalMsMax?: number
}

const totalMsMaxDefault = 20_000
const pauseMs = 250
const pauseMsMax = 1_500

/** Tries the providers in order. When all have failed, retries the first one whose error was temporary, once. */
export function searchWithFallback({ providers, onFailure, totalMsMax }: SearchWithFallbackOptions): WebSearch {
  // As many searches as a provider has connections: behind them the HTTP client would queue, for all accounts alike, while the search's
  // timeout runs.
  const limit = new FairConcurrencyLimit({ concurrentMax: connectionsMax, accountConcurrentMin: 4, waitingMax: 512 })
  return {
    async search(query, signal, account) {
      const words = query.trim().slice(0, queryCharactersMax)
      if (words === '') throw new SearchFailedError('The search needs a query.')
      const late = AbortSignal.timeout(totalMsMax ?? totalMsMaxDefault)
      try {
        const both = AbortSignal.any([signal, late])
        using turn = await limit.enter(account, both)
        if (turn === undefined) throw new SearchFailedError(unavailable)
        return await askProviders(providers, words, both, onFailure)
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

async function askProviders(
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
