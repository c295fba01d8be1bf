import { decodeText } from './charset.ts'
import { isAllowed, parseRobots, type RobotsRules } from './robots-rules.ts'
import type { SafeFetch } from './safe-fetch.ts'
import { FetchFailedError } from './web-fetch.ts'

export type Robots = {
  /** Throws when robots.txt disallows this page. */
  check(url: URL, signal: AbortSignal): Promise<void>
}

/** Our user agent in robots.txt files. */
const robotName = 'PennyRouter'
const hostsMax = 1_000
const keptMs = 60 * 60_000
const keptAfterFailureMs = 60_000
const bytesMax = 500 * 1024

type Kept = { readonly rules: RobotsRules; readonly until: number }

const everything: RobotsRules = []
const nothing: RobotsRules = [{ allow: false, pattern: '/' }]

/** Fetches each host's robots.txt through safe-fetch and caches it for an hour. */
export function createRobots(fetch: SafeFetch, now: () => number): Robots {
  const kept = new Map<string, Kept>()
  return {
    async check(url, signal) {
      const known = kept.get(url.origin)
      const current = known !== undefined && known.until > now() ? known : await read(fetch, url.origin, now, signal)
      // Reinsert on every use: the least recently used host is evicted first.
      kept.delete(url.origin)
      kept.set(url.origin, current)
      if (kept.size > hostsMax) kept.delete(kept.keys().next().value!)
      if (!isAllowed(current.rules, `${url.pathname}${url.search}`))
        throw new FetchFailedError('The site asks robots not to fetch this page (robots.txt).')
    },
  }
}

/** RFC 9309: a missing robots.txt allows everything; a server error allows nothing. */
async function read(fetch: SafeFetch, origin: string, now: () => number, signal: AbortSignal): Promise<Kept> {
  const answer = await fetch.get(`${origin}/robots.txt`, signal)
  if (answer.status >= 500) return { rules: nothing, until: now() + keptAfterFailureMs }
  if (answer.status !== 200) return { rules: everything, until: now() + keptMs }
  const text = decodeText(answer.body.subarray(0, bytesMax), 'text/plain; charset=utf-8')
  return { rules: parseRobots(text, robotName), until: now() + keptMs }
}
