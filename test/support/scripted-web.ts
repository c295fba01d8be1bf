import { type FetchedPage, FetchFailedError } from '../../src/tools/web-fetch.ts'
import { SearchFailedError, type SearchResult } from '../../src/tools/web-search.ts'
import type { WebTools } from '../../src/tools/web-tools.ts'

/** A web whose pages the test defines. Records its requests. */
export type ScriptedWeb = {
  readonly tools: WebTools
  readonly queries: string[]
  readonly urls: string[]
  /** What the next searches find. */
  search: (query: string, signal: AbortSignal) => Promise<readonly SearchResult[]> | readonly SearchResult[]
  /** What the next pages are. */
  page: (url: string, signal: AbortSignal) => Promise<FetchedPage> | FetchedPage
  forget(): void
}

export const pennyResult: SearchResult = {
  title: 'The penny',
  url: 'https://docs.penny.test/penny',
  snippet: 'A penny is a small coin.',
  publishedAt: '2026-01-01',
}
export const centResult: SearchResult = {
  title: 'The cent',
  url: 'https://docs.penny.test/cent',
  snippet: 'A cent is a hundredth.',
  publishedAt: undefined,
}

export function startScriptedWeb(): ScriptedWeb {
  const web: ScriptedWeb = {
    queries: [],
    urls: [],
    search: findsPennies,
    page: readsPennies,
    tools: {
      search: {
        async search(query, signal) {
          web.queries.push(query)
          return web.search(query, signal)
        },
      },
      fetch: {
        async fetch(url, signal) {
          web.urls.push(url)
          return web.page(url, signal)
        },
      },
    },
    forget() {
      web.queries.length = 0
      web.urls.length = 0
      web.search = findsPennies
      web.page = readsPennies
    },
  }
  return web
}

const findsPennies = () => [pennyResult, centResult]

function readsPennies(url: string): FetchedPage {
  return { url, title: 'The penny', text: 'A penny is a small coin. '.repeat(20), truncated: false }
}

export function failsToSearch(): never {
  throw new SearchFailedError('The search engine does not answer.')
}

export function failsToFetch(): never {
  throw new FetchFailedError('The page does not answer.')
}
