import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { startRpcProxy } from '../../test/support/rpc-proxy.ts'
import { until } from '../../test/support/until.ts'
import { ChainNode } from './node.ts'

const chainId = 5042

test('while a node announces heads, the height costs no call; when its connection ends, it is asked for again', async (t) => {
  const announcer = await startAnnouncer(t, chainId)
  const asked = await startRpcProxy(t, 'http://127.0.0.1:1')
  asked.fault = async () => ({ result: '0x7' })
  const node = new ChainNode(asked.url, { chainId })
  assert.equal(await node.height(), 7n)
  const heads = node.followHeads(announcer.url, chainId)
  atEnd(t, () => heads.close())
  const connection = await announcer.subscribed()
  connection.announce(9)
  await until(() => heads.height !== undefined)
  assert.equal(await node.height(), 9n)
  assert.equal(asked.calls.length, 1)
  assert.deepEqual(
    node.health().map(({ failure }) => failure),
    [undefined, undefined],
  )
  connection.end()
  await until(() => node.health()[1]!.failure === 'unusable')
  await until(() => heads.height === undefined)
  assert.equal(await node.height(), 7n)
  ;(await announcer.subscribed()).announce(12)
  await until(async () => (await node.height()) === 12n)
})

test('heads of another chain are not believed', async (t) => {
  const announcer = await startAnnouncer(t, chainId + 1)
  const asked = await startRpcProxy(t, 'http://127.0.0.1:1')
  asked.fault = async () => ({ result: '0x7' })
  const node = new ChainNode(asked.url, { chainId })
  const heads = node.followHeads(announcer.url, chainId)
  atEnd(t, () => heads.close())
  await until(() => node.health()[1]!.failure === 'other chain')
  assert.equal(await node.height(), 7n)
})

type Connection = { announce(height: number): void; end(): void }

/** A node that answers `eth_chainId` and `eth_subscribe` over WebSocket. */
async function startAnnouncer(t: TestContext, chain: number) {
  const connections: Connection[] = []
  const sockets = new Set<Duplex>()
  const server = createServer()
  server.on('upgrade', ({ headers }, socket) => {
    sockets.add(socket)
    const accept = createHash('sha1').update(`${headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
    const head = ['HTTP/1.1 101 Switching Protocols', 'Upgrade: websocket', 'Connection: Upgrade']
    socket.write(`${[...head, `Sec-WebSocket-Accept: ${accept.digest('base64')}`].join('\r\n')}\r\n\r\n`)
    const send = (message: object) => socket.write(frameOf(JSON.stringify({ jsonrpc: '2.0', ...message })))
    socket.on('error', () => {})
    socket.on('data', (frame: Buffer) => {
      const text = textOf(frame)
      if (text === undefined) return
      const { id, method } = JSON.parse(text) as { readonly id: number; readonly method: string }
      send({ id, result: method === 'eth_chainId' ? `0x${chain.toString(16)}` : '0x1' })
      if (method !== 'eth_subscribe') return
      connections.push({
        announce: (height) =>
          send({ method: 'eth_subscription', params: { result: { number: `0x${height.toString(16)}` } } }),
        end: () => void socket.destroy(),
      })
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

/** Of a client's frame: short and masked. Undefined for what is not text. */
function textOf(frame: Buffer): string | undefined {
  if (frame[0] !== 0x81) return undefined
  const length = frame[1]! & 0x7f
  const mask = frame.subarray(2, 6)
  return Buffer.from(frame.subarray(6, 6 + length).map((byte, index) => byte ^ mask[index % 4]!)).toString()
}
