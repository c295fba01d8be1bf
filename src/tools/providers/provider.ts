import type { SearchResult } from '../web-search.ts'

/** One search service. The operator chose its host, so the rules for untrusted hosts do not apply. */
export type SearchProvider = {
  readonly name: string
  /** Throws `ProviderError`. */
  search(query: string, signal: AbortSignal): Promise<readonly SearchResult[]>
}

/** One hit as the provider sent it, not yet validated. */
export type Hit = { readonly [Member in keyof SearchResult]: unknown }

export const resultsMax = 8
const titleCharactersMax = 300
export const snippetCharactersMax = 800
const urlCharactersMax = 2_000

/** Keeps the hits that have a web address. Titles and snippets become one line, which cannot look like another result. */
export function toResults(hits: readonly Hit[]): readonly SearchResult[] {
  return hits.flatMap((hit) => toResult(hit) ?? []).slice(0, resultsMax)
}

function toResult(hit: Hit): SearchResult | undefined {
  if (typeof hit.url !== 'string' || hit.url.length > urlCharactersMax) return undefined
  const url = URL.parse(hit.url)
  if (url === null || !/^https?:$/.test(url.protocol)) return undefined
  return {
    title: plainText(hit.title, titleCharactersMax) || url.hostname,
    url: url.href,
    snippet: plainText(hit.snippet, snippetCharactersMax),
    publishedAt: isoDate(hit.publishedAt),
  }
}

const entities: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  '#39': "'",
  '#x27': "'",
  nbsp: ' ',
}

/** Some providers return HTML in titles and snippets: tags around matched words, escaped characters. */
function plainText(value: unknown, charactersMax: number): string {
  if (typeof value !== 'string') return ''
  return value
    .slice(0, 4 * charactersMax)
    .replaceAll(/<\/?(?:strong|b|em|i|mark|span)>/gi, '')
    .replaceAll(/&(amp|lt|gt|quot|#39|#x27|nbsp);/gi, (_, name: string) => entities[name.toLowerCase()]!)
    .replaceAll(/\s+/g, ' ')
    .trim()
    .slice(0, charactersMax)
}

/** Reads a time without a zone as UTC. */
function isoDate(value: unknown): string | undefined {
  if (typeof value !== 'string') return undefined
  const date = new Date(/T\d\d:\d\d(:\d\d(\.\d+)?)?$/.test(value) ? `${value}Z` : value)
  return Number.isNaN(date.getTime()) ? undefined : date.toISOString()
}

/** The members of a parsed JSON object; an empty record for any other value. */
export function membersOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {}
}

/** The list of hits in a response. Throws when the list is missing: that is a broken response, not a search without hits. */
export function hitsIn(value: unknown, provider: string): readonly Readonly<Record<string, unknown>>[] {
  if (!Array.isArray(value)) throw new ProviderError(`${provider} did not return results`, true)
  return value.map(membersOf)
}

/** One provider failed. The message is for the operator's log; the model gets a more general one. */
export class ProviderError extends Error {
  /** A retry may succeed. */
  readonly temporary: boolean
  readonly retryAfterMs: number | undefined

  constructor(message: string, temporary: boolean, retryAfterMs?: number, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.name = new.target.name
    this.temporary = temporary
    this.retryAfterMs = retryAfterMs
  }
}
