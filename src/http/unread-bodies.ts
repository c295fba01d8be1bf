import type { IncomingMessage } from 'node:http'
import { TokenBuckets } from '../fairness/token-buckets.ts'

const largeBytesMin = 64 * 1024

/** Whether the body is, according to the headers, so large that reading and parsing it would delay other requests. */
export function isLarge({ headers }: IncomingMessage): boolean {
  return Number(headers['content-length']) > largeBytesMin || headers['transfer-encoding'] !== undefined
}

const unitBytes = 64 * 1024
/** Per network: a burst of 128 MiB, then 4 MiB per second. */
const rate = { burstMax: 2_048, perSecond: 64 }
const discardMsMax = 10_000

/**
 * Reads and discards the rest of a refused body. Closing a connection with unread data resets it, and the client loses the answer,
 * because most clients send their whole body before they read. Discarding costs unpaid CPU time, so each network has a rate; above it
 * the connection is reset.
 */
export class UnreadBodies {
  readonly #units: TokenBuckets

  /** `now` in milliseconds. */
  constructor({ now }: { readonly now: () => number }) {
    this.#units = new TokenBuckets({ ...rate, now })
  }

  /** Resolves when the body has ended or the rate is exceeded. */
  async discard(incoming: IncomingMessage, network: string): Promise<void> {
    if (incoming.complete || incoming.destroyed || !this.#units.has(network)) return
    const over = Promise.withResolvers<void>()
    const timer = setTimeout(over.resolve, discardMsMax)
    this.#units.spend(network)
    let bytes = 0
    const count = (chunk: Buffer) => {
      bytes += chunk.length
      for (; bytes >= unitBytes; bytes -= unitBytes) this.#units.spend(network)
      if (!this.#units.has(network)) over.resolve()
    }
    incoming.on('data', count)
    for (const event of ['end', 'close', 'error']) incoming.once(event, () => over.resolve())
    incoming.resume()
    await over.promise
    clearTimeout(timer)
    incoming.off('data', count)
    if (!incoming.complete) incoming.pause()
  }

  /** For connections that stay open: the next request comes after the rest of the body. */
  async discardOrClose(incoming: IncomingMessage, network: string): Promise<void> {
    await this.discard(incoming, network)
    if (!incoming.complete) incoming.socket.destroy()
  }
}
