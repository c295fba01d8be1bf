/** A page that was read. Its text is untrusted: data for the model, never instructions. */
export type FetchedPage = {
  /** The final address, after redirects. */
  readonly url: string
  readonly title: string | undefined
  /** Markdown for an HTML page, plain text for other kinds. */
  readonly text: string
  /** The text was cut; the page is longer. */
  readonly truncated: boolean
}

export type WebFetch = {
  /** Throws `FetchFailedError` when the page cannot be fetched or read within 20 seconds, and the signal's reason once it aborts. */
  fetch(url: string, signal: AbortSignal, account: string): Promise<FetchedPage>
}

/** The page cannot be fetched or read. The message is written for the model and reveals nothing about our network. */
export class FetchFailedError extends Error {}
