import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import type { TestContext } from 'node:test'
import { atEnd } from './at-end.ts'
import { until } from './until.ts'

type Call = { readonly id: number; readonly method: string; readonly params: readonly unknown[] }

export type Connection = {
  announce(height: number): void
  /** To its newest subscription to logs. */
  announceLog(log: object): void
  /** The filters of its subscriptions to logs. */
  readonly filters: readonly { readonly address: string; readonly topics: readonly unknown[] }[]
  end(): void
}

/** A node that answers `eth_chainId` and `eth_subscribe` over WebSocket. */
export async function startAnnouncer(t: TestContext, chain: number) {
  const connections: Connection[] = []
  const sockets = new Set<Duplex>()
  let names = 1
  const server = createServer()
  server.on('upgrade', ({ headers }, socket) => {
    sockets.add(socket)
    const accept = createHash('sha1').update(`${headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
    const head = ['HTTP/1.1 101 Switching Protocols', 'Upgrade: websocket', 'Connection: Upgrade']
    socket.write(`${[...head, `Sec-WebSocket-Accept: ${accept.digest('base64')}`].join('\r\n')}\r\n\r\n`)
    const send = (message: object) => socket.write(frameOf(JSON.stringify({ jsonrpc: '2.0', ...message })))
    socket.on('error', () => {})
    const subscriptions = new Map<string, Connection['filters'][number]>()
    const answer = (text: string): void => {
      const { id, method, params } = JSON.parse(text) as Call
      if (method === 'eth_chainId') return void send({ id, result: `0x${chain.toString(16)}` })
      if (method === 'eth_unsubscribe') return void send({ id, result: subscriptions.delete(params[0] as string) })
      const name = `0x${names.toString(16)}`
      names += 1
      send({ id, result: name })
      if (params[0] === 'logs') return void subscriptions.set(name, params[1] as Connection['filters'][number])
      const notify = (subscription: string, result: object) =>
        send({ method: 'eth_subscription', params: { subscription, result } })
      connections.push({
        announce: (height) => notify(name, { number: `0x${height.toString(16)}` }),
        announceLog: (log) => notify([...subscriptions.keys()].at(-1)!, log),
        get filters() {
          return [...subscriptions.values()]
        },
        end: () => void socket.destroy(),
      })
    }
    let bytes: Buffer = Buffer.alloc(0)
    socket.on('data', (part: Buffer) => {
      bytes = Buffer.concat([bytes, part])
      for (let frame = readFrame(bytes); frame !== undefined; frame = readFrame(bytes)) {
        bytes = frame.rest
        if (frame.text !== undefined) answer(frame.text)
      }
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  atEnd(t, () => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return {
    url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}`,
    subscribed: () => until(() => connections.shift()),
  }
}

/** A text frame of a server: short, not masked. */
function frameOf(text: string): Buffer {
  const bytes = Buffer.from(text)
  return Buffer.concat([Buffer.from([0x81, 126, bytes.length >> 8, bytes.length & 0xff]), bytes])
}

/** The first frame of a client, which is masked; undefined while it is not complete. Without text: it is not a text frame. */
function readFrame(bytes: Buffer): { readonly text: string | undefined; readonly rest: Buffer } | undefined {
  if (bytes.length < 2) return undefined
  const short = bytes[1]! & 0x7f
  const start = short < 126 ? 2 : short === 126 ? 4 : 10
  if (bytes.length < start + 4) return undefined
  const length = short < 126 ? short : short === 126 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2))
  const mask = bytes.subarray(start, start + 4)
  const payload = bytes.subarray(start + 4, start + 4 + length)
  if (payload.length < length) return undefined
  const text =
    bytes[0] === 0x81 ? Buffer.from(payload.map((byte, index) => byte ^ mask[index % 4]!)).toString() : undefined
  return { text, rest: bytes.subarray(start + 4 + length) }
}
