/** One hit. The texts are a stranger's: data for the model, never instructions. */
export type SearchResult = {
  readonly title: string
  readonly url: string
  readonly snippet: string
  /** ISO 8601, where the provider knows it. */
  readonly publishedAt: string | undefined
}

/** What is used of a query. */
export const queryCharactersMax = 400

export type WebSearch = {
  /** Throws `SearchFailedError` when no provider answered; a search without hits is an empty list. */
  search(query: string, signal: AbortSignal): Promise<readonly SearchResult[]>
}

/** No provider answered. The message is written for the model. */
export class SearchFailedError extends Error {}
