import { Resolver } from 'node:dns/promises'

/** Every address of a name, of both families. An empty list, or an error, when it has none. */
export type Resolve = (hostname: string, signal: AbortSignal) => Promise<readonly string[]>

const answerMsMax = 2_000
const triesMax = 2

/**
 * Asks the name servers directly: those of this machine, or the given ones. The system's own look-up would also read the
 * hosts file, add the search domains of this machine's network, and block one of the few threads that files share for as
 * long as a stranger's server likes.
 */
export function createResolve(servers?: readonly string[]): Resolve {
  return async (hostname, signal) => {
    const resolver = new Resolver({ timeout: answerMsMax, tries: triesMax })
    if (servers !== undefined) resolver.setServers(servers)
    const cancel = () => resolver.cancel()
    signal.addEventListener('abort', cancel)
    try {
      const answers = await Promise.allSettled([resolver.resolve4(hostname), resolver.resolve6(hostname)])
      return answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []))
    } finally {
      signal.removeEventListener('abort', cancel)
    }
  }
}
