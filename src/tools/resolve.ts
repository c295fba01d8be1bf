import { Resolver } from 'node:dns/promises'

/** Returns every IPv4 and IPv6 address of a name. Returns an empty list or throws when the name has none. */
export type Resolve = (hostname: string, signal: AbortSignal) => Promise<readonly string[]>

const answerMsMax = 2_000
const triesMax = 2

/**
 * Queries the name servers directly: those of this machine, or the given ones. The system resolver would also read the hosts file
 * and append this network's search domains. It would also block one of the few threads of libuv's pool, which file access shares,
 * for as long as a hostile name server delays its reply.
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
