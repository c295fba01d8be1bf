import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { getRequestListener } from '@hono/node-server'
import { Hono } from 'hono'

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
  /** By method and path, in Hono's notation: `GET /v1/transfer/:id`. A path has one method. */
  readonly routes: ReadonlyMap<string, Route>
  /** Answers errors that a route did not handle. */
  readonly answerError: (error: unknown) => JsonAnswer
}

export type JsonServer = { readonly port: number; close(): Promise<void> }

const bodyBytesMax = 256 * 1024
const connectionsMax = 2_000
const closeMsMax = 3_000
const limits = {
  maxHeaderSize: 16 * 1024,
  requestTimeout: 15_000,
  headersTimeout: 10_000,
  keepAliveTimeout: 65_000,
}

/** An HTTP server for JSON requests and responses, with limits on sizes and times. */
export async function startJsonServer({ host, port, ...options }: JsonServerOptions): Promise<JsonServer> {
  const server = createServer(limits, getRequestListener(appOf(options).fetch))
  server.maxConnections = connectionsMax
  server.listen(port, host)
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    /** Finishes requests in progress, within a time limit. */
    async close() {
      const closed = once(server, 'close')
      server.close()
      const killer = setTimeout(() => server.closeAllConnections(), closeMsMax)
      await closed
      clearTimeout(killer)
    },
  }
}

type Environment = { readonly Bindings: { readonly incoming: IncomingMessage } }

function appOf({ routes, answerError }: Pick<JsonServerOptions, 'routes' | 'answerError'>): Hono<Environment> {
  const app = new Hono<Environment>()
  const tooLarge = `The request body is larger than the limit of ${bodyBytesMax / 1024} KiB. Send fewer items.`
  for (const [name, route] of routes) {
    const [method, path] = name.split(' ') as [string, string]
    app.on(method, path, async ({ req, env }) => {
      const bytes = await readBody(env.incoming)
      if (bytes === undefined) return send(refusal(413, tooLarge))
      const body = method === 'GET' ? undefined : parseJson(bytes)
      if (method !== 'GET' && body === undefined) return send(refusal(400, 'The body is not JSON.'))
      const query = new URL(req.url).searchParams
      return send(await route({ path: req.path, query, body, authorization: req.header('authorization') }))
    })
    app.all(path, ({ req }) =>
      send({ ...refusal(405, `${req.path.slice(0, 200)} takes ${method}.`), headers: { allow: method } }),
    )
  }
  app.notFound(({ req }) => send(refusal(404, `Not found: ${req.path.slice(0, 200)}.`)))
  // A client that disconnected while it sent its request gets no answer, and is not worth a line in the log.
  app.onError((error, { env }) =>
    send(env.incoming.errored === null ? answerError(error) : refusal(400, 'Incomplete.')),
  )
  return app
}

/** A response in Circle's format for errors that are not part of x402. */
export function refusal(status: number, message: string): JsonAnswer {
  return { status, body: { code: status, message } }
}

/** Undefined when it is too long. The excess is read and dropped: the response needs the connection. */
async function readBody(incoming: IncomingMessage): Promise<Buffer | undefined> {
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of incoming) {
    length += chunk.length
    if (length <= bodyBytesMax) chunks.push(chunk)
    if (length > bodyBytesMax * 16) incoming.destroy()
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

function send({ status, body, headers = {} }: JsonAnswer): Response {
  return Response.json(body, { status, headers })
}
