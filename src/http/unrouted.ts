import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import { RequestError } from '@hono/node-server'
import { OverloadedError, ServiceError } from '../errors.ts'
import { createRequestId, formatRequestId } from '../ledger/request-id.ts'
import { errorResponse } from './error-response.ts'
import { sendJson, v1Headers } from './send.ts'
import { arrivalMsMax } from './server.ts'

// Requests that reach no route also get a request id and the error envelope, so that support can find them.

/** For requests that arrive while the service is still starting. */
export function answerStarting(publicUrl: string, outgoing: ServerResponse): void {
  answerUnread(new OverloadedError('The service is starting.'), publicUrl, outgoing)
}

/** Refuses a request unread and closes its connection. */
export function answerUnread(refusal: ServiceError, publicUrl: string, outgoing: ServerResponse): void {
  const { status, headers, body } = answerTo(refusal, publicUrl)
  sendJson(outgoing, status, body, { ...headers, connection: 'close' })
}

export type BareSocketOptions = {
  readonly publicUrl: string
  readonly begun: BegunAnswers
}

/** Answers bytes that are not valid HTTP, or a request that did not arrive in time. */
export function answerMalformed(
  { publicUrl, begun }: BareSocketOptions,
  error: NodeJS.ErrnoException,
  socket: Duplex,
): void {
  if (error.code === 'ECONNRESET' || !socket.writable || begun.on(socket)) {
    socket.destroy()
    return
  }
  // Wait for pending answers on this connection: the client would take this error for the answer to a paid request.
  const isWaiting = begun.whenAnswered(socket, () => answerMalformed({ publicUrl, begun }, error, socket))
  if (isWaiting) return
  const isLate = error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
  endWith(socket, isLate ? new LateRequestError() : new MalformedRequestError(error.code), publicUrl)
}

/** Answers `CONNECT`. Node has let go of the connection: it handles no error of it, and sends no answer that is pending on it. */
export function answerConnect({ publicUrl, begun }: BareSocketOptions, socket: Duplex): void {
  socket.on('error', () => socket.destroy()).once('finish', () => socket.destroy())
  if (begun.isPending(socket)) {
    socket.destroy()
    return
  }
  const message = 'Method CONNECT is not allowed: this service is not a proxy. Send requests to its URL.'
  endWith(socket, new ServiceError('method_not_allowed', message, { headers: { allow: 'GET, HEAD, POST' } }), publicUrl)
}

function endWith(socket: Duplex, refusal: ServiceError, publicUrl: string): void {
  const { status, headers, body } = answerTo(refusal, publicUrl)
  const text = JSON.stringify(body)
  const fields = {
    ...headers,
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(text)),
    connection: 'close',
  }
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}`)
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('\r\n')}\r\n\r\n${text}`)
}

/** Tracks connections with a pending answer: anything else written there would become part of that answer. */
export class BegunAnswers {
  readonly #answers = new WeakMap<Duplex, Set<ServerResponse>>()
  readonly #awaited = new WeakSet<ServerResponse>()

  watch({ socket }: IncomingMessage, outgoing: ServerResponse): void {
    const answers = this.#answers.get(socket) ?? new Set()
    this.#answers.set(socket, answers.add(outgoing))
    outgoing.once('close', () => answers.delete(outgoing))
  }

  isPending(socket: Duplex): boolean {
    return (this.#answers.get(socket)?.size ?? 0) > 0
  }

  on(socket: Duplex): boolean {
    return [...(this.#answers.get(socket) ?? [])].some(({ headersSent }) => headersSent)
  }

  /** True while a complete request waits for its answer. Then `then` is called after the answer, once per connection. */
  whenAnswered(socket: Duplex, then: () => void): boolean {
    const next = [...(this.#answers.get(socket) ?? [])].find(({ req }) => req.complete)
    if (next === undefined) return false
    if (!this.#awaited.has(next)) next.once('close', then)
    this.#awaited.add(next)
    return true
  }
}

/** For a malformed URL; any other error here is a bug. */
export function unroutedResponse(error: unknown, publicUrl: string): Response {
  const refusal = error instanceof RequestError ? new MalformedRequestError(error.message) : error
  const { status, headers, body } = answerTo(refusal, publicUrl)
  return Response.json(body, { status, headers })
}

function answerTo(refusal: unknown, publicUrl: string) {
  const requestId = formatRequestId(createRequestId(0, Date.now()))
  const { status, headers, body } = errorResponse(refusal, { requestId, publicUrl })
  return { status, headers: { ...v1Headers(requestId), ...headers }, body }
}

export class MalformedRequestError extends ServiceError {
  constructor(reason: string | undefined) {
    super(
      'invalid_value',
      reason === 'HPE_HEADER_OVERFLOW'
        ? 'The request headers are larger than the limit of 16 KiB. Send fewer or shorter headers.'
        : 'This is not a valid HTTP request. Check its first line, its Host header and its content-length.',
    )
  }
}

class LateRequestError extends ServiceError {
  constructor() {
    const { headers, whole } = arrivalMsMax
    super(
      'request_timeout',
      `The request did not arrive in time. The limit is ${headers / 1000} s for the headers and ${whole / 1000} s in total. Send it again.`,
    )
  }
}

/** The refusal of a request whose head no route can answer. */
export function refusalOfHead({ headers, httpVersion, rawHeaders }: IncomingMessage): ServiceError | undefined {
  if (headers.host === undefined && httpVersion === '1.1')
    return new ServiceError('invalid_value', 'The request has no Host header. HTTP/1.1 requires it.')
  // Node reads the first and drops the others; a proxy in front may have checked another one.
  const isAuthorization = (text: string, index: number) => index % 2 === 0 && /^authorization$/i.test(text)
  if (rawHeaders.filter(isAuthorization).length > 1)
    return new ServiceError('invalid_value', 'The request has more than one Authorization header. Send one.')
  return undefined
}
