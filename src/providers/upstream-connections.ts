import { errors, Pool } from 'undici'
import type { UpstreamTimeouts } from '../config/config.ts'
import type { Protocol } from './protocol.ts'
import { type AnswerHead, UpstreamAnswer } from './upstream-answer.ts'

export type UpstreamOptions = {
  /** Our name of the provider. */
  readonly id: string
  readonly protocol: Protocol
  /** Without the protocol's path: `https://api.openai.com/v1`. */
  readonly baseUrl: string
  readonly apiKey?: string | undefined
  /** Sent with every request. */
  readonly headers?: Readonly<Record<string, string>> | undefined
  readonly timeouts: UpstreamTimeouts
  /** Requests under way at once; one more is refused rather than queued. */
  readonly connectionsMax: number
}

type SendOptions = {
  readonly headers: Readonly<Record<string, string>> | undefined
  readonly repeats: Repeats | undefined
  /** Called with the answer of each request that is sent, before it is. */
  readonly onSend: (answer: UpstreamAnswer) => void
}

/** `stale`: where a kept connection turned out to be closed. `unanswered`: also where no connection came about. */
export type Repeats = 'stale' | 'unanswered'

export type Connections = {
  /** Posts a body; resolves with the head of the answer. Rejects with what went wrong, unexplained. */
  send(body: string, options: SendOptions): Promise<AnswerHead>
  /** Asks for the list of models: any answer but 401, 403 and 5xx shows a server that works. */
  probe(): Promise<void>
  /** Takes no more requests; resolves when those under way have ended. */
  retire(): Promise<void>
  close(): Promise<void>
}

const keepAliveMs = 30_000
const probeMsMax = 5_000

/** The connections to the upstream, kept alive between requests. */
export function createConnections(options: UpstreamOptions): Connections {
  const url = new URL(options.baseUrl)
  const pool = createPool(url, options)
  const past = watch(pool)
  const basePath = url.pathname.replace(/\/+$/, '')
  const path = `${basePath}${options.protocol.path}`
  const ownHeaders = requestHeaders(options)
  return {
    async send(body, { headers: more, repeats = 'unanswered', onSend }) {
      const headers = more === undefined ? ownHeaders : { ...more, ...ownHeaders }
      const openedBefore = past.openedCount()
      for (let isRepeat = false; ; isRepeat = true) {
        const answer = new UpstreamAnswer()
        onSend(answer)
        pool.dispatch({ method: 'POST', path, headers, body }, answer)
        try {
          return await answer.head
        } catch (error) {
          // With no connection opened meanwhile, the request travelled on an old one. Another request's may hide that: then
          // it is not repeated, which is the safe mistake.
          const wasReused = past.openedCount() === openedBefore
          if (isRepeat || !isRepeatable(error, wasReused, past, repeats)) throw error
        }
      }
    },
    async probe() {
      const { accept: _, 'content-type': __, ...headers } = ownHeaders
      const signal = AbortSignal.timeout(probeMsMax)
      const { statusCode, body } = await pool.request({ method: 'GET', path: `${basePath}/models`, headers, signal })
      await body.dump()
      if (statusCode >= 500 || statusCode === 401 || statusCode === 403) throw new ProbeError(statusCode)
    },
    retire: () => pool.close(),
    close: () => pool.destroy(),
  }
}

class ProbeError extends Error {
  constructor(statusCode: number) {
    super(`The server answered a probe with status ${statusCode}.`)
    this.name = 'ProbeError'
  }
}

function createPool(url: URL, { timeouts, connectionsMax }: UpstreamOptions): Pool {
  return new Pool(url.origin, {
    connections: connectionsMax,
    connectTimeout: timeouts.connectMs,
    headersTimeout: timeouts.firstByteMs,
    bodyTimeout: timeouts.idleMs,
    keepAliveTimeout: keepAliveMs,
    // One request, one connection: ending the request ends the upstream's work at once.
    pipelining: 1,
    allowH2: false,
  })
}

function requestHeaders({ apiKey, headers }: UpstreamOptions): Record<string, string> {
  return {
    ...headers,
    'content-type': 'application/json',
    accept: 'text/event-stream',
    ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }),
  }
}

/** What happened to the pool's connections, to tell whether a failed request can have reached the upstream. */
type Past = { readonly openedCount: () => number; readonly neverOpened: (error: unknown) => boolean }

function watch(pool: Pool): Past {
  const connectErrors = new WeakSet<Error>()
  let openedCount = 0
  pool.on('connect', () => {
    openedCount += 1
  })
  pool.on('connectionError', (_origin, _targets, error) => {
    connectErrors.add(error)
  })
  return {
    openedCount: () => openedCount,
    neverOpened: (error) => error instanceof Error && connectErrors.has(error),
  }
}

/**
 * A request is repeated once, and only where the upstream cannot have begun to answer it: no connection came about, or one
 * that was kept alive turned out to be closed. The latter looks the same when the server died with the request: it may then get the
 * request twice, which costs it work and the customer nothing. A timeout is not repeated (it has cost its time), nor is any status: the
 * upstream has spoken, and the client's own retry is the better judge of when to come back.
 */
function isRepeatable(error: unknown, wasReused: boolean, past: Past, repeats: Repeats): boolean {
  if (past.neverOpened(error)) return repeats === 'unanswered' && !isTimeout(error)
  return wasReused && isDisconnect(error)
}

/** One of the limits on connecting, on the head and on silence. */
export function isTimeout(error: unknown): boolean {
  return (
    error instanceof errors.ConnectTimeoutError ||
    error instanceof errors.HeadersTimeoutError ||
    error instanceof errors.BodyTimeoutError
  )
}

function isDisconnect(error: unknown): boolean {
  if (error instanceof errors.SocketError) return true
  return error instanceof Error && 'code' in error && (error.code === 'ECONNRESET' || error.code === 'EPIPE')
}
