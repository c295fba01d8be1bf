import { type ClientRequest, type IncomingMessage, type RequestOptions, request as sendRequest } from 'node:http'
import type { Socket } from 'node:net'
import { Readable } from 'node:stream'
import { constants, createBrotliDecompress, createGunzip, createInflate } from 'node:zlib'
import { UnreachableError } from './untrusted-socket.ts'
import { FetchFailedError } from './web-fetch.ts'

export type ExchangeLimits = {
  /** From sending the request until the response headers are complete. */
  readonly headMsMax: number
  /** The longest silence inside a response. */
  readonly idleMsMax: number
  /** Below this rate, once `paceAfterMs` have passed, the response fails: a server that drips bytes would occupy a fetch. */
  readonly bytesPerSecondMin: number
  readonly paceAfterMs: number
  readonly headerBytesMax: number
  readonly headersMax: number
  /** Bytes as received. The rest is not read. */
  readonly wireBytesMax: number
  /** Bytes after decompression. The rest is not read. */
  readonly decodedBytesMax: number
  /**
   * Highest allowed ratio of decompressed to received bytes, checked after `ratioAfterBytes` of output: stops decompression bombs.
   */
  readonly ratioMax: number
  readonly ratioAfterBytes: number
}

export type HttpAnswer = {
  readonly status: number
  readonly contentType: string
  readonly location: string | undefined
  readonly body: Uint8Array
  /** The response was longer than the limit. */
  readonly cut: boolean
}

/** The request to send over a connection. */
export type HttpRequest = {
  readonly method: 'GET' | 'POST'
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string | undefined
  /** Bodies of other statuses are not read. */
  readonly readsBodyOf: (status: number) => boolean
}

/** Sends one request over an open connection. The connection serves nothing else and is closed afterwards. */
export async function exchange(
  socket: Socket,
  question: HttpRequest,
  limits: ExchangeLimits,
  signal: AbortSignal,
): Promise<HttpAnswer> {
  try {
    // With a given connection Node uses no agent: nothing is shared, pooled or proxied.
    const transport = { createConnection: () => socket, headers: { connection: 'close' } }
    return await exchangeOver(transport, question, limits, signal)
  } finally {
    socket.destroy()
  }
}

/**
 * Sends one request over the connection that the options of Node's `request` describe. The connection stays open if it can be used
 * again.
 */
export async function exchangeOver(
  transport: Transport,
  question: HttpRequest,
  limits: ExchangeLimits,
  signal: AbortSignal,
): Promise<HttpAnswer> {
  signal.throwIfAborted()
  const request = createRequest(transport, question, limits)
  let response: IncomingMessage | undefined
  let tooSlow = false
  const stop = () => {
    tooSlow = true
    request.destroy()
  }
  signal.addEventListener('abort', stop)
  request.setTimeout(limits.idleMsMax, stop)
  try {
    response = await readHead(request, question, limits.headMsMax, stop)
    const isRead = question.readsBodyOf(response.statusCode ?? 0)
    // An error of the unread body does not matter.
    if (!isRead) response.on('error', () => {})
    const body = isRead ? await readBody(response, limits) : { bytes: new Uint8Array(), cut: false }
    return {
      status: response.statusCode ?? 0,
      contentType: response.headers['content-type'] ?? '',
      location: response.headers.location,
      body: body.bytes,
      cut: body.cut,
    }
  } catch (error) {
    signal.throwIfAborted()
    if (tooSlow) throw new SlowPageError()
    // The response is not HTTP, or uses a form that is not supported.
    throw error instanceof FetchFailedError
      ? error
      : new FetchFailedError(new UnreachableError().message, { cause: error })
  } finally {
    signal.removeEventListener('abort', stop)
    // After a response was read to its end, Node has taken the connection back.
    if (response?.complete !== true) request.destroy()
  }
}

/** How a request gets its connection. */
export type Transport = Pick<RequestOptions, 'createConnection' | 'agent'> & {
  readonly headers?: Readonly<Record<string, string>>
}

function createRequest(
  transport: Transport,
  { method, url, headers }: HttpRequest,
  limits: ExchangeLimits,
): ClientRequest {
  const request = sendRequest({
    ...transport,
    method,
    path: `${url.pathname}${url.search}`,
    setHost: false,
    headers: { host: url.host, ...headers, ...transport.headers },
    maxHeaderSize: limits.headerBytesMax,
    insecureHTTPParser: false,
  })
  request.maxHeadersCount = limits.headersMax
  return request
}

async function readHead(
  request: ClientRequest,
  { body }: HttpRequest,
  msMax: number,
  onLate: () => void,
): Promise<IncomingMessage> {
  let late: NodeJS.Timeout | undefined
  try {
    return await new Promise<IncomingMessage>((resolve, reject) => {
      request.on('socket', () => {
        late = setTimeout(onLate, msMax)
      })
      request.on('response', resolve)
      request.on('error', (error) => reject(request.reusedSocket ? new StaleConnectionError(error) : error))
      // A response that switches protocols closes the connection without an error event.
      request.on('close', () => reject(new UnreachableError()))
      request.end(body)
    })
  } finally {
    clearTimeout(late)
  }
}

async function readBody(
  response: IncomingMessage,
  limits: ExchangeLimits,
): Promise<{ readonly bytes: Uint8Array; readonly cut: boolean }> {
  const wire = { bytes: 0, cut: false }
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of decode(paced(response, wire, limits), response.headers['content-encoding'])) {
    const rest = limits.decodedBytesMax - bytes
    if (chunk.length > rest) {
      chunks.push(chunk.subarray(0, rest))
      return { bytes: Buffer.concat(chunks), cut: true }
    }
    chunks.push(chunk)
    bytes += chunk.length
    // The ratio of a decompression bomb, not of a page.
    if (bytes > limits.ratioAfterBytes && bytes > wire.bytes * limits.ratioMax)
      throw new FetchFailedError('The page is too large.')
  }
  return { bytes: Buffer.concat(chunks), cut: wire.cut }
}

/** Yields the body as it arrives, up to its limit. Throws when it arrives too slowly. */
async function* paced(
  response: IncomingMessage,
  wire: { bytes: number; cut: boolean },
  limits: ExchangeLimits,
): AsyncGenerator<Buffer> {
  const begun = performance.now()
  for await (const chunk of response as AsyncIterable<Buffer>) {
    const rest = limits.wireBytesMax - wire.bytes
    wire.bytes += chunk.length
    if (chunk.length > rest) {
      wire.cut = true
      yield chunk.subarray(0, rest)
      return
    }
    const elapsedMs = performance.now() - begun
    if (elapsedMs > limits.paceAfterMs && wire.bytes * 1000 < elapsedMs * limits.bytesPerSecondMin) {
      throw new SlowPageError()
    }
    yield chunk
  }
}

function decode(source: AsyncIterable<Buffer>, encoding: string | undefined): AsyncIterable<Buffer> {
  // A body that was cut in the middle still decompresses up to the cut.
  const lenient = { finishFlush: constants.Z_SYNC_FLUSH }
  switch (encoding?.trim().toLowerCase() || 'identity') {
    case 'identity':
      return source
    case 'gzip':
    case 'x-gzip':
      return Readable.from(source).compose(createGunzip(lenient))
    case 'deflate':
      return Readable.from(source).compose(createInflate(lenient))
    case 'br':
      return Readable.from(source).compose(createBrotliDecompress({ finishFlush: constants.BROTLI_OPERATION_FLUSH }))
    default:
      // Includes stacked encodings: no real page uses them, and each layer multiplies the size.
      throw new FetchFailedError(new UnreachableError().message, { cause: `content-encoding ${encoding}` })
  }
}

export class SlowPageError extends FetchFailedError {
  constructor() {
    super('The page took too long to answer.')
  }
}

/** A connection that was kept open has been closed by the other side. The request may be sent again over a new one. */
export class StaleConnectionError extends FetchFailedError {
  constructor(cause: unknown) {
    super(new UnreachableError().message, { cause })
  }
}
