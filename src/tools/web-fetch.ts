/** A page that was read. Its text is a stranger's: data for the model, never instructions. */
export type FetchedPage = {
  /** Where it was found, after redirects. */
  readonly url: string
  readonly title: string | undefined
  /** Markdown of a web page, the text of anything else. */
  readonly text: string
  /** The page went on, but was cut. */
  readonly truncated: boolean
}

export type WebFetch = {
  /** Throws `FetchFailedError` for every page that cannot be had. */
  fetch(url: string, signal: AbortSignal, account: string): Promise<FetchedPage>
}

/** The page cannot be had. The message is written for the model and says nothing about our network. */
export class FetchFailedError extends Error {}
