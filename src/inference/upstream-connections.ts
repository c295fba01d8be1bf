import { errors, Pool } from 'undici'
import { type AnswerHead, UpstreamAnswer } from './upstream-answer.ts'

export type UpstreamTimeouts = {
  readonly connectMs: number
  /** From the request being sent to the head of the response. */
  readonly firstByteMs: number
  /** Between two reads of the answer. */
  readonly idleMs: number
  /** The whole of it, from asking to the last byte. */
  readonly totalMs: number
}

export type UpstreamOptions = {
  /** Without `/responses`: `https://api.openai.com/v1`. */
  readonly baseUrl: string
  readonly apiKey?: string | undefined
  readonly timeouts: UpstreamTimeouts
  /** Requests under way at once; one more is refused rather than queued. */
  readonly connectionsMax: number
}

export type UpstreamResponse = AnswerHead & { readonly body: UpstreamAnswer }

export type Connections = {
  /** Posts a body to `/responses`; resolves with the head of the answer. Rejects with what went wrong, unexplained. */
  send(body: string, signal: AbortSignal, headers?: Readonly<Record<string, string>>): Promise<UpstreamResponse>
  close(): Promise<void>
}

const keepAliveMs = 30_000

/** The connections to the upstream, kept alive between requests. */
export function createConnections(options: UpstreamOptions): Connections {
  const url = new URL(options.baseUrl)
  const pool = createPool(url, options)
  const past = watch(pool)
  const path = `${url.pathname.replace(/\/+$/, '')}/responses`
  const ownHeaders = requestHeaders(options.apiKey)
  return {
    send(body, signal, more) {
      const headers = more === undefined ? ownHeaders : { ...more, ...ownHeaders }
      return sendRepeatably(async () => {
        const answer = new UpstreamAnswer()
        abortWith(signal, answer)
        pool.dispatch({ method: 'POST', path, headers, body }, answer)
        const { statusCode, headers: answered } = await answer.head
        return { statusCode, headers: answered, body: answer }
      }, past)
    },
    close: () => pool.destroy(),
  }
}

function abortWith(signal: AbortSignal, answer: UpstreamAnswer): void {
  const abort = () => answer.abort(signal.reason)
  signal.addEventListener('abort', abort, { once: true })
  answer.onClose(() => signal.removeEventListener('abort', abort))
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

function requestHeaders(apiKey: string | undefined): Record<string, string> {
  return {
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
 * Repeats a request once, and only where the upstream cannot have begun to answer it: no connection came about, or one
 * that was kept alive turned out to be closed. A timeout is not repeated (it has cost its time), nor is any status: the
 * upstream has spoken, and the client's own retry is the better judge of when to come back.
 */
async function sendRepeatably(send: () => Promise<UpstreamResponse>, past: Past): Promise<UpstreamResponse> {
  const openedBefore = past.openedCount()
  try {
    return await send()
  } catch (error) {
    // With no connection opened meanwhile, the request travelled on an old one. Another request's may hide that: then
    // it is not repeated, which is the safe mistake.
    const wasReused = past.openedCount() === openedBefore
    const repeatable = past.neverOpened(error) ? !isTimeout(error) : wasReused && isDisconnect(error)
    if (!repeatable) throw error
    return send()
  }
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
