import type { Ask } from './ask.ts'
import { hitsIn, membersOf, ProviderError, type SearchProvider, toResults } from './provider.ts'

/** https://docs.searxng.org/dev/search_api.html; the instance must have the `json` format enabled, otherwise it responds 403. */
export function createSearxng(baseUrl: string, ask: Ask): SearchProvider {
  return {
    name: 'searxng',
    async search(query, signal) {
      const url = new URL(`${baseUrl}/search`)
      url.searchParams.set('q', query)
      url.searchParams.set('format', 'json')
      const answer = membersOf(await ask({ provider: 'searxng', url }, signal))
      const hits = hitsIn(answer.results, 'searxng')
      // SearXNG queries other engines. When none of them responded, an empty list does not mean "no results".
      const silent = Array.isArray(answer.unresponsive_engines) && answer.unresponsive_engines.length > 0
      if (hits.length === 0 && silent) throw new ProviderError('searxng: none of its engines answered', true)
      return toResults(
        hits.map(({ title, url, content, publishedDate }) => ({
          title,
          url,
          snippet: content,
          publishedAt: publishedDate,
        })),
      )
    },
  }
}
