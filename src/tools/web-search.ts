export type SearchResult = {
  readonly title: string
  readonly url: string
  readonly snippet: string
  readonly publishedAt: string | undefined
}

export type WebSearch = {
  /** @throws {SearchFailedError} when there was no answer; an empty list is one. */
  search(query: string, signal: AbortSignal): Promise<readonly SearchResult[]>
}

/** The message is written for the model. */
export class SearchFailedError extends Error {}
