import type { Ask } from './ask.ts'
import { hitsIn, membersOf, resultsMax, type SearchProvider, toResults } from './provider.ts'

const wordsMax = 50

/** https://api-dashboard.search.brave.com/app/documentation/web-search */
export function createBrave(apiKey: string, ask: Ask, baseUrl = 'https://api.search.brave.com'): SearchProvider {
  return {
    name: 'brave',
    async search(query, signal) {
      const url = new URL(`${baseUrl}/res/v1/web/search`)
      // Brave rejects queries with more words.
      url.searchParams.set('q', query.split(/\s+/).slice(0, wordsMax).join(' '))
      url.searchParams.set('count', String(resultsMax))
      url.searchParams.set('result_filter', 'web')
      url.searchParams.set('text_decorations', 'false')
      const answer = await ask({ provider: 'brave', url, headers: { 'x-subscription-token': apiKey } }, signal)
      const { web, type } = membersOf(answer)
      // Brave omits `web` when there are no hits.
      if (web === undefined && type === 'search') return []
      const hits = hitsIn(membersOf(web).results, 'brave')
      return toResults(
        hits.map(({ title, url, description, page_age }) => ({
          title,
          url,
          snippet: description,
          publishedAt: page_age,
        })),
      )
    },
  }
}
