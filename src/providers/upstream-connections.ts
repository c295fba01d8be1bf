import { type Dispatcher, errors, Pool } from 'undici'
import type { UpstreamTimeouts } from '../config/config.ts'
import type { Protocol } from './protocol.ts'

export type UpstreamOptions = {
  /** Our name for the provider. */
  readonly id: string
  readonly protocol: Protocol
  /** Without the protocol's path: `https://api.openai.com/v1`. */
  readonly baseUrl: string
  readonly apiKey?: string | undefined
  /** Sent with every request. */
  readonly headers?: Readonly<Record<string, string>> | undefined
  readonly timeouts: UpstreamTimeouts
  /** Concurrent requests. One more is refused. Only further rounds of an answer are queued, at most until their deadline. */
  readonly connectionsMax: number
  /** One account may have this many of them while there is room, even if its share is smaller. */
  readonly connectionsPerAccountMin: number
}

/** `stale`: retry when a kept connection was already closed. `unanswered`: also when no connection could be opened. */
export type Repeats = 'stale' | 'unanswered'

export type Connections = {
  /** Posts a body. The handler gets the answer. */
  dispatch(
    body: string,
    headers: Readonly<Record<string, string>> | undefined,
    handler: Dispatcher.DispatchHandler,
  ): void
  /** How many connections were opened so far. */
  readonly openedCount: number
  /** Whether a request that failed without an answer is sent again. `openedBefore` is the count when it was sent. */
  isRepeatable(error: unknown, openedBefore: number, repeats: Repeats): boolean
  /** Requests the list of models. Any response but 401, 403 and 5xx shows that the server works. */
  probe(): Promise<void>
  /** Accepts no more requests. Resolves when those in flight have ended. */
  retire(): Promise<void>
  close(): Promise<void>
}

const keepAliveMs = 30_000
const probeMsMax = 5_000

/** Keep-alive connections to the upstream. */
export function createConnections(options: UpstreamOptions): Connections {
  const url = new URL(options.baseUrl)
  const pool = createPool(url, options)
  const past = watch(pool)
  const basePath = url.pathname.replace(/\/+$/, '')
  const path = `${basePath}${options.protocol.path}`
  const ownHeaders = requestHeaders(options)
  return {
    dispatch(body, more, handler) {
      const headers = more === undefined ? ownHeaders : { ...more, ...ownHeaders }
      pool.dispatch({ method: 'POST', path, headers, body }, handler)
    },
    get openedCount() {
      return past.openedCount()
    },
    isRepeatable(error, openedBefore, repeats) {
      // If no connection was opened meanwhile, the request used an old one. A connection opened for another request may hide that: then
      // the request is not sent again, which is safe.
      return isRepeatable(error, past.openedCount() === openedBefore, past, repeats)
    },
    async probe() {
      const { accept: _, 'content-type': __, ...headers } = ownHeaders
      const signal = AbortSignal.timeout(probeMsMax)
      const { statusCode, body } = await pool.request({ method: 'GET', path: `${basePath}/models`, headers, signal })
      await body.dump()
      if (statusCode >= 500 || statusCode === 401 || statusCode === 403)
        throw new Error(`The server answered a probe with status ${statusCode}.`)
    },
    retire: () => pool.close(),
    close: () => pool.destroy(),
  }
}

function createPool(url: URL, { timeouts, connectionsMax }: UpstreamOptions): Pool {
  return new Pool(url.origin, {
    connections: connectionsMax,
    connectTimeout: timeouts.connectMs,
    headersTimeout: timeouts.firstByteMs,
    bodyTimeout: timeouts.idleMs,
    keepAliveTimeout: keepAliveMs,
    // One request per connection: ending the request ends the upstream's work immediately.
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

/** Counts events of the pool's connections, to tell whether a failed request can have reached the upstream. */
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
 * A request is retried once, and only if the upstream cannot have begun to answer it: no connection could be opened, or a
 * kept connection was already closed. If the server died with the request, that looks the same: it may then get the request
 * twice, which costs it work and the customer nothing. Timeouts and error statuses are not retried: a timeout has used up its time,
 * and the client knows better when to retry after an error.
 */
function isRepeatable(error: unknown, wasReused: boolean, past: Past, repeats: Repeats): boolean {
  if (past.neverOpened(error)) return repeats === 'unanswered' && !isTimeout(error)
  return wasReused && isDisconnect(error)
}

/** The timeouts for connecting, for the response headers and for silence. */
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
