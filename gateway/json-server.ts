import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export type JsonAnswer = {
  readonly status: number
  readonly body: unknown
  readonly headers?: Readonly<Record<string, string>>
}

export type JsonRequest = {
  readonly path: string
  readonly query: URLSearchParams
  /** Undefined for a GET. */
  readonly body: unknown
  /** The `Authorization` header. */
  readonly authorization: string | undefined
}

export type Route = (request: JsonRequest) => Promise<JsonAnswer>

export type JsonServerOptions = {
  readonly host: string
  /** 0 for any free port. */
  readonly port: number
  /** By method and path; a path that ends in `/` takes one more segment. */
  readonly routes: ReadonlyMap<string, Route>
  /** Answers errors that a route did not handle. */
  readonly answerError: (error: unknown) => JsonAnswer
}

export type JsonServer = { readonly port: number; close(): Promise<void> }

const bodyBytesMax = 256 * 1024
const headerBytesMax = 16 * 1024
const connectionsMax = 2_000
const requestMsMax = 15_000
const headersMsMax = 10_000
const keepAliveMs = 65_000
const closeMsMax = 3_000

/** An HTTP server for JSON requests and responses, with limits on sizes and times. */
export async function startJsonServer(options: JsonServerOptions): Promise<JsonServer> {
  const server = createServer({ maxHeaderSize: headerBytesMax }, (request, response) => {
    void respond(request, response, options)
  })
  server.requestTimeout = requestMsMax
  server.headersTimeout = headersMsMax
  server.keepAliveTimeout = keepAliveMs
  server.maxConnections = connectionsMax
  server.listen(options.port, options.host)
  await once(server, 'listening')
  return { port: (server.address() as AddressInfo).port, close: () => close(server) }
}

/** Finishes requests in progress, within a time limit. */
async function close(server: Server): Promise<void> {
  const closed = once(server, 'close')
  server.close()
  server.closeIdleConnections()
  const killer = setTimeout(() => server.closeAllConnections(), closeMsMax)
  await closed
  clearTimeout(killer)
}

async function respond(request: IncomingMessage, response: ServerResponse, options: JsonServerOptions): Promise<void> {
  try {
    const body = await readBody(request)
    const answer = await answerTo(request, body, options).catch(options.answerError)
    send(response, answer)
  } catch {
    // The client disconnected while sending its request.
    response.destroy()
  }
}

async function answerTo(
  request: IncomingMessage,
  bytes: Buffer | undefined,
  options: JsonServerOptions,
): Promise<JsonAnswer> {
  const url = URL.parse(request.url ?? '', 'http://gateway')
  if (url === null) return refusal(400, 'The URL is malformed.')
  const path = url.pathname
  const methods = ['GET', 'POST'].filter((method) => findRoute(options.routes, method, path) !== undefined)
  if (methods.length === 0) return refusal(404, `Not found: ${path.slice(0, 200)}.`)
  const route = findRoute(options.routes, request.method ?? '', path)
  if (route === undefined) {
    const allow = methods.join(', ')
    return { ...refusal(405, `${path.slice(0, 200)} takes ${allow}.`), headers: { allow } }
  }
  if (bytes === undefined)
    return refusal(413, `The request body is larger than the limit of ${bodyBytesMax / 1024} KiB. Send fewer items.`)
  const { authorization } = request.headers
  if (request.method === 'GET') return route({ path, query: url.searchParams, body: undefined, authorization })
  const body = parseJson(bytes)
  if (body === undefined) return refusal(400, 'The body is not JSON.')
  return route({ path, query: url.searchParams, body, authorization })
}

function findRoute(routes: ReadonlyMap<string, Route>, method: string, path: string): Route | undefined {
  return routes.get(`${method} ${path}`) ?? routes.get(`${method} ${path.slice(0, path.lastIndexOf('/') + 1)}`)
}

/** A response in Circle's format for errors that are not part of x402. */
export function refusal(status: number, message: string): JsonAnswer {
  return { status, body: { code: status, message } }
}

/** Undefined when it is too long. The excess is read and dropped: the response needs the connection. */
async function readBody(request: IncomingMessage): Promise<Buffer | undefined> {
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of request) {
    length += chunk.length
    if (length <= bodyBytesMax) chunks.push(chunk)
    if (length > bodyBytesMax * 16) throw new Error('the request body is far above the limit')
  }
  return length > bodyBytesMax ? undefined : Buffer.concat(chunks)
}

function parseJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch {
    return undefined
  }
}

function send(response: ServerResponse, { status, body, headers = {} }: JsonAnswer): void {
  const text = JSON.stringify(body)
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
    ...headers,
  })
  response.end(text)
}
