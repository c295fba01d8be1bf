import type { Ask } from './ask.ts'
import { hitsIn, membersOf, resultsMax, type SearchProvider, toResults } from './provider.ts'

/** https://docs.tavily.com/documentation/api-reference/endpoint/search */
export function createTavily(apiKey: string, ask: Ask, baseUrl = 'https://api.tavily.com'): SearchProvider {
  return {
    name: 'tavily',
    async search(query, signal) {
      const body = { query, max_results: resultsMax, search_depth: 'basic', include_answer: false }
      const headers = { authorization: `Bearer ${apiKey}` }
      const answer = await ask({ provider: 'tavily', url: new URL(`${baseUrl}/search`), headers, body }, signal)
      const hits = hitsIn(membersOf(answer).results, 'tavily')
      return toResults(
        hits.map(({ title, url, content, published_date }) => ({
          title,
          url,
          snippet: content,
          publishedAt: published_date,
        })),
      )
    },
  }
}
