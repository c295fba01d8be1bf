import type { Ask } from './ask.ts'
import { hitsIn, membersOf, resultsMax, type SearchProvider, snippetCharactersMax, toResults } from './provider.ts'

/** https://exa.ai/docs/reference/search */
export function createExa(apiKey: string, ask: Ask, baseUrl = 'https://api.exa.ai'): SearchProvider {
  return {
    name: 'exa',
    async search(query, signal) {
      const body = {
        query,
        type: 'auto',
        numResults: resultsMax,
        contents: { highlights: { maxCharacters: snippetCharactersMax } },
      }
      const url = new URL(`${baseUrl}/search`)
      const answer = await ask({ provider: 'exa', url, headers: { 'x-api-key': apiKey }, body }, signal)
      const hits = hitsIn(membersOf(answer).results, 'exa')
      return toResults(
        hits.map(({ title, url, highlights, text, publishedDate }) => ({
          title,
          url,
          snippet: Array.isArray(highlights) && highlights.length > 0 ? highlights.join(' … ') : text,
          publishedAt: publishedDate,
        })),
      )
    },
  }
}
