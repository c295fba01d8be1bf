import { type ExchangeLimits, exchange, type HttpAnswer, SlowPageError } from './exchange.ts'
import { openSocket, type SocketOptions } from './untrusted-socket.ts'
import { parsePageUrl } from './untrusted-url.ts'
import { FetchFailedError } from './web-fetch.ts'

/** A host that is served without a network connection to a third party. Its name never reaches a resolver. */
export type LocalSite = { get(url: URL, signal: AbortSignal): Promise<HttpAnswer> }

export type SafeFetchOptions = Omit<SocketOptions, 'connectMsMax'> & {
  readonly userAgent: string
  /** By host name, https only. All other hosts are untrusted and subject to every rule. */
  readonly sites?: ReadonlyMap<string, LocalSite> | undefined
  readonly limits: SafeFetchLimits
}

export type SafeFetchLimits = ExchangeLimits & {
  readonly connectMsMax: number
  /** Covers everything: DNS lookups, connections, redirects, the last byte. */
  readonly totalMsMax: number
  readonly redirectsMax: number
}

export type SafeFetch = {
  /** Follows redirects. Every address is checked from the start; `beforeHop` can refuse one by throwing. */
  get(url: string, signal: AbortSignal, beforeHop?: BeforeHop): Promise<SafeAnswer>
  isSite(url: URL): boolean
}

export type BeforeHop = (url: URL, signal: AbortSignal) => Promise<void>

/** `url` is the final address, after redirects. */
export type SafeAnswer = HttpAnswer & { readonly url: URL }

export const safeFetchLimits: SafeFetchLimits = {
  connectMsMax: 3_000,
  headMsMax: 5_000,
  idleMsMax: 5_000,
  totalMsMax: 15_000,
  bytesPerSecondMin: 1_024,
  paceAfterMs: 5_000,
  headerBytesMax: 32 * 1024,
  headersMax: 200,
  wireBytesMax: 5 * 1024 * 1024,
  decodedBytesMax: 10 * 1024 * 1024,
  ratioMax: 100,
  ratioAfterBytes: 1024 * 1024,
  redirectsMax: 5,
}

/** The only way to fetch from untrusted hosts. No cookies, no credentials, no proxy, no connection reuse. */
export function createSafeFetch(options: SafeFetchOptions): SafeFetch {
  const { sites, limits } = options
  const siteOf = (url: URL) => (url.protocol === 'https:' && url.port === '' ? sites?.get(url.hostname) : undefined)
  return {
    isSite: (url) => siteOf(url) !== undefined,
    async get(text, signal, beforeHop) {
      const late = AbortSignal.timeout(limits.totalMsMax)
      const both = AbortSignal.any([signal, late])
      try {
        return await follow(
          text,
          async (url) => {
            await beforeHop?.(url, both)
            const site = siteOf(url)
            return site === undefined ? fetchUntrusted(url, options, both) : site.get(url, both)
          },
          limits.redirectsMax,
        )
      } catch (error) {
        signal.throwIfAborted()
        throw late.aborted ? new SlowPageError() : error
      }
    },
  }
}

async function follow(text: string, ask: (url: URL) => Promise<HttpAnswer>, redirectsMax: number): Promise<SafeAnswer> {
  let url = parsePageUrl(text)
  for (let redirects = 0; redirects <= redirectsMax; redirects += 1) {
    const answer = await ask(url)
    const isRedirect = [301, 302, 303, 307, 308].includes(answer.status)
    if (!isRedirect || answer.location === undefined) return { ...answer, url }
    const next = parsePageUrl(answer.location, url)
    // A page requested over https must not be fetched over http.
    if (url.protocol === 'https:' && next.protocol === 'http:')
      throw new FetchFailedError('The page redirects to an address without encryption.')
    url = next
  }
  throw new FetchFailedError(`The page redirects more than ${redirectsMax} times.`)
}

async function fetchUntrusted(url: URL, options: SafeFetchOptions, signal: AbortSignal): Promise<HttpAnswer> {
  const { limits, userAgent } = options
  const socket = await openSocket(url, { ...options, connectMsMax: limits.connectMsMax }, signal)
  const headers = {
    'user-agent': userAgent,
    accept: 'text/html, application/xhtml+xml, text/*, application/json, application/pdf, */*;q=0.1',
    'accept-encoding': 'gzip, deflate, br',
    'accept-language': 'en, *;q=0.5',
  }
  // Bodies of redirects and errors are not used.
  return exchange(socket, { method: 'GET', url, headers, readsBodyOf: (status) => status === 200 }, limits, signal)
}
