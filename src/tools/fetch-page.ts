import { FairConcurrencyLimit } from '../fairness/fair-concurrency-limit.ts'
import { SlowPageError } from './exchange.ts'
import type { ReadPage, ReadQuestion } from './page-channel.ts'
import { pageKind } from './page-kind.ts'
import type { PageReader } from './page-reader.ts'
import { createRobots } from './robots.ts'
import type { SafeAnswer, SafeFetch } from './safe-fetch.ts'
import { type FetchedPage, FetchFailedError, type WebFetch } from './web-fetch.ts'

export type FetchPageOptions = {
  readonly fetch: SafeFetch
  readonly reader: PageReader
  readonly now: () => number
  readonly limits?: FetchPageLimits
}

export type FetchPageLimits = {
  /** Length of the page's text. About four characters make a token. */
  readonly charactersMax: number
  /** Covers everything: waiting for a place, robots.txt, the page and parsing it. */
  readonly totalMsMax: number
  /** Concurrent fetches of all accounts together. */
  readonly fetchesMax: number
}

export const fetchPageLimits: FetchPageLimits = { charactersMax: 40_000, totalMsMax: 20_000, fetchesMax: 64 }

/** Web fetch. Checks robots.txt at every hop, fetches through safe-fetch, and parses the page in a child process. */
export function createWebFetch({ fetch, reader, now, limits = fetchPageLimits }: FetchPageOptions): WebFetch {
  const robots = createRobots(fetch, now)
  const limit = new FairConcurrencyLimit({ concurrentMax: limits.fetchesMax, accountConcurrentMin: 4, waitingMax: 512 })
  return {
    async fetch(url, signal, account) {
      const late = AbortSignal.timeout(limits.totalMsMax)
      const both = AbortSignal.any([signal, late])
      try {
        using turn = await limit.enter(account, both)
        if (turn === undefined) throw new BusyError()
        const answer = await fetch.get(url, both, async (hop) => {
          if (!fetch.isSite(hop)) await robots.check(hop, both)
        })
        return await read(answer, limits.charactersMax, (question) => reader.read(question, both, account))
      } catch (error) {
        signal.throwIfAborted()
        throw late.aborted && !(error instanceof BusyError) ? new SlowPageError() : error
      }
    },
  }
}

async function read(
  { status, contentType, body, cut, url }: SafeAnswer,
  charactersMax: number,
  readPage: (question: ReadQuestion) => Promise<ReadPage>,
): Promise<FetchedPage> {
  if (status !== 200) throw new FetchFailedError(`The page answered with status ${status}.`)
  const kind = pageKind(contentType, body)
  // A truncated PDF cannot be read: its cross-reference table is at the end.
  if (kind === undefined || (kind === 'pdf' && cut))
    throw new FetchFailedError('This is not a page, text or PDF, or it is too large.')
  const page = await readPage({ kind, body, contentType, url: url.href, charactersMax })
  return { url: url.href, title: page.title, text: page.text, truncated: page.truncated || cut }
}

class BusyError extends FetchFailedError {
  constructor() {
    super('Too many pages are being fetched at the moment.')
  }
}
