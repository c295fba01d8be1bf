import { once } from 'node:events'
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

/** What may happen between a client and us, as a bad proxy or a bad line would have it. */
export const mishaps = [
  'none',
  'delay',
  'refused-500',
  'refused-429',
  'cut-before',
  'cut-after-request',
  'lost-reply-500',
  'lost-reply-cut',
  'cut-midway',
] as const

export type Mishap = (typeof mishaps)[number]

export type FlakyProxy = {
  readonly origin: string
  /** How often each mishap happened. */
  readonly counts: Readonly<Record<string, number>>
  close(): Promise<void>
}

/** An HTTP proxy that does one of these to every request, by the given die. */
export async function startFlakyProxy(target: string, die: () => Mishap): Promise<FlakyProxy> {
  const counts: Record<string, number> = {}
  const server = createServer(async (incoming, outgoing) => {
    const mishap = die()
    counts[mishap] = (counts[mishap] ?? 0) + 1
    const chunks: Buffer[] = []
    for await (const chunk of incoming) chunks.push(chunk as Buffer)
    await pass(target, incoming, Buffer.concat(chunks), outgoing, mishap).catch(() => outgoing.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    counts,
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

async function pass(
  target: string,
  incoming: IncomingMessage,
  body: Buffer,
  outgoing: ServerResponse,
  mishap: Mishap,
): Promise<void> {
  if (mishap === 'cut-before') return void outgoing.destroy()
  if (mishap === 'refused-500') return refuse(outgoing, 500)
  if (mishap === 'refused-429') return refuse(outgoing, 429)
  if (mishap === 'delay') await sleep(30)
  const { host: _, connection: __, ...headers } = incoming.headers
  const forwarded = request(new URL(incoming.url!, target), { method: incoming.method!, headers, agent: false })
  forwarded.end(body)
  if (mishap === 'cut-after-request') {
    await sleep(5)
    forwarded.on('error', () => {})
    forwarded.destroy()
    return void outgoing.destroy()
  }
  const [answer] = (await once(forwarded, 'response')) as [IncomingMessage]
  const whole = Buffer.concat((await answer.toArray()) as Buffer[])
  if (mishap === 'lost-reply-500') return refuse(outgoing, 500)
  if (mishap === 'lost-reply-cut') return void outgoing.destroy()
  const { 'transfer-encoding': _encoding, connection: _connection, ...answered } = answer.headers
  outgoing.writeHead(answer.statusCode!, { ...answered, 'content-length': String(whole.length) })
  if (mishap !== 'cut-midway') return void outgoing.end(whole)
  outgoing.write(whole.subarray(0, Math.floor(whole.length / 2)), () => outgoing.destroy())
}

function refuse(outgoing: ServerResponse, status: number): void {
  outgoing.writeHead(status, { 'content-type': 'application/json', 'retry-after-ms': '5' })
  outgoing.end('{"error":{"message":"the proxy says no","type":"server_error","param":null,"code":null}}')
}
