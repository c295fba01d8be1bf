import { Shares } from '../fairness/shares.ts'
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

const fetchesPerAccountMin = 4
const waitingMax = 512
const waitingPerAccountMin = 4

export const fetchPageLimits: FetchPageLimits = { charactersMax: 40_000, totalMsMax: 20_000, fetchesMax: 64 }

/** Web fetch. Checks robots.txt at every hop, fetches through safe-fetch, and parses the page in a child process. */
export function createWebFetch({ fetch, reader, now, limits = fetchPageLimits }: FetchPageOptions): WebFetch {
  const robots = createRobots(fetch, now)
  const places = new FetchPlaces(limits.fetchesMax)
  return {
    async fetch(url, signal, account) {
      const late = AbortSignal.timeout(limits.totalMsMax)
      const both = AbortSignal.any([signal, late])
      try {
        using _place = await places.enter(account, both)
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

type Waiting = { readonly account: string; readonly enter: () => void }

/** The places of concurrent fetches. An account that uses its share waits until one of its fetches ends; others are served meanwhile. */
class FetchPlaces {
  readonly #places: Shares
  readonly #waitingPlaces = new Shares({
    what: 'page fetches that wait',
    capacity: waitingMax,
    floor: waitingPerAccountMin,
  })
  /** In order of arrival. */
  readonly #waiting: Waiting[] = []

  constructor(fetchesMax: number) {
    this.#places = new Shares({ what: 'page fetches', capacity: fetchesMax, floor: fetchesPerAccountMin })
  }

  /** Waits for a place. Dispose of the result when the fetch has ended. */
  async enter(account: string, signal: AbortSignal): Promise<Disposable> {
    signal.throwIfAborted()
    const isNext = !this.#waiting.some((waiting) => waiting.account === account)
    if (isNext && this.#places.refusal(account) === undefined) this.#places.acquire(account)
    else await this.#wait(account, signal)
    return {
      [Symbol.dispose]: () => {
        this.#places.release(account)
        this.#admit()
      },
    }
  }

  async #wait(account: string, signal: AbortSignal): Promise<void> {
    if (this.#waitingPlaces.refusal(account) !== undefined) throw new BusyError()
    const turn = Promise.withResolvers<void>()
    const waiting = { account, enter: turn.resolve }
    const leave = () => {
      this.#remove(waiting)
      turn.reject(new BusyError())
    }
    this.#waitingPlaces.acquire(account)
    this.#waiting.push(waiting)
    signal.addEventListener('abort', leave, { once: true })
    try {
      await turn.promise
    } finally {
      signal.removeEventListener('abort', leave)
      this.#waitingPlaces.release(account)
    }
  }

  #admit(): void {
    for (const waiting of [...this.#waiting]) {
      if (this.#places.refusal(waiting.account) !== undefined) continue
      this.#places.acquire(waiting.account)
      this.#remove(waiting)
      waiting.enter()
    }
  }

  #remove(waiting: Waiting): void {
    const place = this.#waiting.indexOf(waiting)
    if (place !== -1) this.#waiting.splice(place, 1)
  }
}

async function read(
  { status, contentType, body, cut, url }: SafeAnswer,
  charactersMax: number,
  readPage: (question: ReadQuestion) => Promise<ReadPage>,
): Promise<FetchedPage> {
  if (status !== 200) throw new PageStatusError(status)
  const kind = pageKind(contentType, body)
  // A truncated PDF cannot be read: its cross-reference table is at the end.
  if (kind === undefined || (kind === 'pdf' && cut)) throw new NotTextError()
  const page = await readPage({ kind, body, contentType, url: url.href, charactersMax })
  return { url: url.href, title: page.title, text: page.text, truncated: page.truncated || cut }
}

class PageStatusError extends FetchFailedError {
  constructor(status: number) {
    super(`The page answered with status ${status}.`)
  }
}

class NotTextError extends FetchFailedError {
  constructor() {
    super('This is not a page, text or PDF, or it is too large.')
  }
}

class BusyError extends FetchFailedError {
  constructor() {
    super('Too many pages are being fetched at the moment.')
  }
}
