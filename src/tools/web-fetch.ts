export type FetchedPage = {
  /** Where the text came from in the end. */
  readonly url: string
  readonly title: string | undefined
  readonly text: string
  readonly truncated: boolean
}

export type WebFetch = {
  /** @throws {FetchFailedError} when the page was refused or could not be read. */
  fetch(url: string, signal: AbortSignal): Promise<FetchedPage>
}

/** The message is written for the model. */
export class FetchFailedError extends Error {}
