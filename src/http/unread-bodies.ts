import type { IncomingMessage } from 'node:http'
import { TokenBuckets } from './token-buckets.ts'

const largeBytesMin = 64 * 1024

/** Whether reading and parsing the body takes time that others notice, as far as the head of the request tells. */
export function isLarge({ headers }: IncomingMessage): boolean {
  return Number(headers['content-length']) > largeBytesMin || headers['transfer-encoding'] !== undefined
}

const unitBytes = 64 * 1024
/** 128 MiB at once and 4 MiB per second, for each network. */
const rate = { burstMax: 2_048, perSecond: 64 }
const discardMsMax = 10_000

/**
 * Reads the rest of a body that was refused and throws it away. A server that closes a connection with unread data resets it, and the
 * client loses the answer: most clients send their whole body before they look for one. Reading costs CPU time that nobody pays for.
 * So each network has a rate, and above it the connection is reset.
 */
export class UnreadBodies {
  readonly #units: TokenBuckets

  /** `now` in milliseconds. */
  constructor({ now }: { readonly now: () => number }) {
    this.#units = new TokenBuckets({ ...rate, now })
  }

  /** Resolves when the body has ended, or no more of it is to be read. */
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

  /** After an answer that leaves the connection open: the next request on it can be read only behind the body. */
  async discardOrClose(incoming: IncomingMessage, network: string): Promise<void> {
    await this.discard(incoming, network)
    if (!incoming.complete) incoming.socket.destroy()
  }
}
