import { request } from 'undici'
import type { LocalSite } from './safe-fetch.ts'
import { UnreachableError } from './untrusted-socket.ts'

/** Host name of the pages that the sandbox's search returns. `.test` is reserved, so no third party can own it. */
export const documentationHost = 'docs.penny.test'

const bytesMax = 5 * 1024 * 1024
const answerMsMax = 5_000

/** Serves the documentation pages from the sandbox. That is the operator's own process, and no caller can choose its address. */
export function createDocumentationSite(sandboxSearchUrl: string): LocalSite {
  return {
    async get(url, signal) {
      const both = AbortSignal.any([signal, AbortSignal.timeout(answerMsMax)])
      try {
        const answer = await request(`${sandboxSearchUrl}/pages${url.pathname}`, { signal: both })
        const body = new Uint8Array(await answer.body.arrayBuffer())
        const contentType = String(answer.headers['content-type'] ?? '')
        return {
          status: answer.statusCode,
          contentType,
          location: undefined,
          body: body.subarray(0, bytesMax),
          cut: body.length > bytesMax,
        }
      } catch {
        signal.throwIfAborted()
        throw new UnreachableError()
      }
    },
  }
}
