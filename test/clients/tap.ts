import { once } from 'node:events'
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** One request of a client and its response, as sent over the wire. */
export type Exchange = {
  readonly method: string
  readonly path: string
  readonly requestHeaders: NodeJS.Dict<string | string[]>
  /** Parsed where it is JSON. */
  readonly requestBody: Readonly<Record<string, unknown>>
  /** 0 until an answer begins. */
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly text: string
  /** False when either side left before the end. */
  readonly isWhole: boolean
}

/** A proxy between a client and the service that keeps what passes: the client is changed in nothing but its address. */
export type Tap = {
  /** Ends in /v1. */
  readonly baseUrl: string
  readonly exchanges: readonly Exchange[]
  /** The next answer with this status, once all of it has passed. */
  next(status: number): Promise<Exchange>
  forget(): void
  stop(): Promise<void>
}

export async function startTap(origin: string): Promise<Tap> {
  const exchanges: Exchange[] = []
  const waiting: { readonly status: number; readonly resolve: (exchange: Exchange) => void }[] = []
  const tell = (exchange: Exchange) => {
    const index = waiting.findIndex(({ status }) => status === exchange.status)
    if (index !== -1) waiting.splice(index, 1)[0]!.resolve(exchange)
  }
  const server = createServer((incoming, outgoing) => void relay(origin, incoming, outgoing, exchanges, tell))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    exchanges,
    next: (status) => new Promise((resolve) => waiting.push({ status, resolve })),
    forget: () => void exchanges.splice(0),
    async stop() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}

async function relay(
  origin: string,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  exchanges: Exchange[],
  tell: (exchange: Exchange) => void,
): Promise<void> {
  const chunks: Buffer[] = []
  for await (const chunk of incoming) chunks.push(chunk as Buffer)
  const body = Buffer.concat(chunks)
  const { method = 'GET', url = '/' } = incoming
  const { connection: _, ...headers } = incoming.headers
  const exchange = {
    method,
    path: url,
    requestHeaders: headers,
    requestBody: parseBody(body),
    status: 0,
    headers: {} as Record<string, string>,
    text: '',
    isWhole: false,
  }
  exchanges.push(exchange)

  const outward = request(new URL(url, origin), { method, headers, agent: false })
  // When one side disconnects, the other connection is closed too: this is how an abort reaches the service.
  outgoing.once('close', () => outward.destroy())
  outward.on('error', () => outgoing.destroy())
  outward.once('response', (answer) => {
    exchange.status = answer.statusCode!
    exchange.headers = Object.fromEntries(Object.entries(answer.headers).map(([name, value]) => [name, String(value)]))
    outgoing.writeHead(answer.statusCode!, answer.headers)
    outgoing.flushHeaders()
    answer.setEncoding('utf8')
    answer.on('data', (text: string) => {
      exchange.text += text
      outgoing.write(text)
    })
    answer.once('end', () => {
      exchange.isWhole = true
      tell(exchange)
      outgoing.end()
    })
    answer.on('error', () => outgoing.destroy())
  })
  outward.end(body)
}

function parseBody(body: Buffer): Record<string, unknown> {
  try {
    return JSON.parse(body.toString('utf8'))
  } catch {
    return {}
  }
}
