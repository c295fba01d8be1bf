/** One hit. Its texts are untrusted: data for the model, never instructions. */
export type SearchResult = {
  readonly title: string
  readonly url: string
  readonly snippet: string
  /** ISO 8601, if the provider sent it. */
  readonly publishedAt: string | undefined
}

/** Callers cut longer queries. */
export const queryCharactersMax = 400

export type WebSearch = {
  /**
   * Throws `SearchFailedError` when no provider answered within 20 seconds, and the signal's reason once it aborts. A search without
   * hits returns an empty list. Accounts are served in turn. With `halted`, only that signal ends a search that was sent to a provider,
   * because the operator pays for it; `signal` ends the wait before.
   */
  search(query: string, signal: AbortSignal, account: string, halted?: AbortSignal): Promise<readonly SearchResult[]>
}

/** No provider answered. The message is written for the model. */
export class SearchFailedError extends Error {}
