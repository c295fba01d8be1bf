import { once } from 'node:events'
import { connect } from 'node:net'
import {
  type ExchangeLimits,
  exchangeOver,
  type HttpAnswer,
  type HttpRequest,
  SlowPageError,
  StaleConnectionError,
} from './exchange.ts'
import { KeptConnections } from './kept-connections.ts'
import { openSocket, type SocketOptions, UnreachableError } from './untrusted-socket.ts'
import { hostOf, parsePageUrl, RefusedUrlError, refuseLocalHost } from './untrusted-url.ts'

export type SafePostOptions = Omit<SocketOptions, 'connectMsMax'> & {
  readonly userAgent: string
  /**
   * Allows receivers on this machine, over plain http and on any port. Set only where the service itself serves this machine alone.
   */
  readonly allowsLoopback: boolean
  readonly limits: SafePostLimits
}

export type SafePostLimits = ExchangeLimits & { readonly connectMsMax: number; readonly totalMsMax: number }

export type PostAnswer = { readonly status: number; readonly text: string }

export type PostMessage = {
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  /** Messages with the same sender may use the same connection, one after the other. */
  readonly sender: string
}

/** Sends one message and reads the beginning of the response. Does not follow redirects. Throws when there is no response. */
export type SafePost = (url: URL, message: PostMessage, signal: AbortSignal) => Promise<PostAnswer>

export const safePostLimits: SafePostLimits = {
  connectMsMax: 3_000,
  headMsMax: 5_000,
  idleMsMax: 5_000,
  totalMsMax: 8_000,
  bytesPerSecondMin: 1,
  paceAfterMs: 8_000,
  headerBytesMax: 16 * 1024,
  headersMax: 100,
  wireBytesMax: 4 * 1024,
  decodedBytesMax: 4 * 1024,
  ratioMax: 100,
  ratioAfterBytes: 64 * 1024,
}

/**
 * Posts to untrusted hosts by the rules of `safe-fetch.ts`: public addresses only, no proxy. The address is checked when a connection
 * is opened; it stays open for a few seconds, for the next message of the same sender to the same origin.
 */
export function createSafePost(options: SafePostOptions): SafePost {
  const { limits, userAgent, allowsLoopback } = options
  const connections = new KeptConnections()
  return async (url, { headers, body, sender }, signal) => {
    const late = AbortSignal.timeout(limits.totalMsMax)
    const both = AbortSignal.any([signal, late])
    const open = () =>
      allowsLoopback && isLoopback(url)
        ? dialLoopback(url, limits.connectMsMax, both)
        : openSocket(url, { ...options, connectMsMax: limits.connectMsMax }, both)
    const transport = connections.transportFor({ key: `${sender} ${url.origin}`, open })
    const send = (question: HttpRequest): Promise<HttpAnswer> => exchangeOver(transport, question, limits, both)
    try {
      const question = {
        method: 'POST',
        url,
        headers: { 'user-agent': userAgent, ...headers },
        body,
        readsBodyOf: () => true,
      } as const
      const answer = await send(question).catch((error: unknown) => {
        // The receiver may get it twice, which it has to expect anyway.
        if (error instanceof StaleConnectionError) return send(question)
        throw error
      })
      return { status: answer.status, text: new TextDecoder().decode(answer.body) }
    } catch (error) {
      signal.throwIfAborted()
      throw late.aborted ? new SlowPageError() : error
    }
  }
}

/** Throws `RefusedUrlError` unless the address is public https, judged by its text. Names are resolved later, when it is used. */
export function parsePostUrl(text: string, allowsLoopback: boolean): URL {
  const local = allowsLoopback ? URL.parse(text) : null
  if (local !== null && isLoopback(local)) return local
  const url = parsePageUrl(text)
  if (url.protocol !== 'https:') throw new RefusedUrlError('must be https')
  refuseLocalHost(url)
  return url
}

function isLoopback(url: URL): boolean {
  return url.protocol === 'http:' && ['127.0.0.1', 'localhost', '::1'].includes(hostOf(url)) && url.username === ''
}

async function dialLoopback(url: URL, connectMsMax: number, signal: AbortSignal) {
  const socket = connect({ host: hostOf(url), port: Number(url.port || 80), noDelay: true })
  socket.on('error', () => {})
  try {
    await once(socket, 'connect', { signal: AbortSignal.any([signal, AbortSignal.timeout(connectMsMax)]) })
    return socket
  } catch {
    socket.destroy()
    throw new UnreachableError()
  }
}
