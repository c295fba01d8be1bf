import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { mock, type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { until } from '../../test/support/until.ts'
import { WastedConnections } from './wasted-connections.ts'

const ask = 'GET /good HTTP/1.1\r\nhost: localhost\r\n\r\n'
const upload = 'POST /bad HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\npart of a body'

/** A server that answers /good with 200, refuses the rest, and leaves uploads unread; its clock and its turns stand still. */
async function startGuarded(context: TestContext) {
  mock.timers.enable({ apis: ['setInterval'] })
  atEnd(context, () => mock.timers.reset())
  let nowMs = 0
  const connections: Socket[] = []
  const server: Server = createServer((incoming, outgoing) => {
    if (incoming.method === 'POST') return
    outgoing.writeHead(incoming.url === '/good' ? 200 : 404).end()
  })
  const wasted = new WastedConnections({ now: () => nowMs })
  wasted.guard(server)
  server.on('connection', (socket) => connections.push(socket))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  atEnd(context, async () => {
    wasted.stop()
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  const open = async (text: string, localAddress = '127.0.0.1') => {
    const before = connections.length
    const socket = connect({ port, host: '127.0.0.1', localAddress })
    socket.on('error', () => {})
    socket.write(text)
    await until(() => connections.length > before)
    return socket
  }
  /** Uploads that are given up half way; resolves when the server has noticed. */
  const abandon = async (count: number) => {
    const before = connections.length
    const sockets = await Promise.all(Array.from({ length: count }, () => open(upload)))
    await until(() => connections.slice(before).every(({ bytesRead }) => bytesRead > 0))
    for (const socket of sockets) socket.destroy()
    await until(() => connections.slice(before).every(({ closed }) => closed))
  }
  return { connections, wasted, open, abandon, pass: (ms: number) => void (nowMs += ms) }
}

const turn = () => mock.timers.tick(50)

async function status(socket: Socket): Promise<string> {
  const [bytes] = (await once(socket, 'data')) as [Buffer]
  return bytes.toString().slice(9, 12)
}

test('above 100 abandoned uploads a network’s new connections are not read until their turn; open ones are served', async (context) => {
  const { open, connections, abandon, pass } = await startGuarded(context)
  const kept = await open(ask)
  assert.equal(await status(kept), '200')
  await abandon(100)
  const first = await open(ask)
  const second = await open(ask)
  kept.write(ask)
  assert.equal(await status(kept), '200', 'a connection that is open is not delayed')
  assert.deepEqual(
    connections.slice(-2).map(({ bytesRead }) => bytesRead),
    [0, 0],
  )
  turn()
  assert.equal(await status(first), '200')
  assert.equal(connections.at(-1)!.bytesRead, 0, 'one a turn')
  turn()
  assert.equal(await status(second), '200')
  pass(50)
  assert.equal(await status(await open(ask)), '200', 'within the rate again, nothing waits')
})

test('connections whose last request was answered are not counted, refused ones are', async (context) => {
  const { open, connections, abandon } = await startGuarded(context)
  await abandon(99)
  for (let time = 0; time < 20; time += 1) {
    const socket = await open(ask)
    await status(socket)
    socket.destroy()
    await until(() => connections.at(-1)!.closed)
  }
  const refused = await open(ask.replace('good', 'none'))
  assert.equal(await status(refused), '404')
  refused.destroy()
  await until(() => connections.at(-1)!.closed)
  await open(ask)
  assert.equal(connections.at(-1)!.bytesRead, 0)
})

test('a connection on which a request was paid for is not wasted, also when its client leaves before the answer', async (context) => {
  const { open, connections, abandon, wasted } = await startGuarded(context)
  await abandon(99)
  for (let time = 0; time < 3; time += 1) {
    const socket = await open(upload)
    const other = connections.at(-1)!
    wasted.paid(other)
    await until(() => other.bytesRead > 0)
    socket.destroy()
    await until(() => other.closed)
  }
  assert.equal(await status(await open(ask)), '200')
})

test('another network is not delayed', async (context) => {
  const { open, abandon } = await startGuarded(context)
  await abandon(100)
  const held = await open(ask)
  assert.equal(await status(await open(ask, '127.0.0.2')), '200')
  turn()
  assert.equal(await status(held), '200')
})

test('of more than 100 held connections the oldest is reset', async (context) => {
  const { open, abandon } = await startGuarded(context)
  await abandon(100)
  const oldest = await open(ask)
  const next = await open(ask)
  await Promise.all(Array.from({ length: 98 }, () => open(upload)))
  assert.equal(oldest.closed, false)
  await open(upload)
  await until(() => oldest.closed)
  assert.equal(oldest.bytesRead, 0)
  turn()
  assert.equal(await status(next), '200')
})

test('a server that is about to drain serves what is held, and holds nothing more', async (context) => {
  const { open, abandon, wasted } = await startGuarded(context)
  await abandon(100)
  const held = await open(ask)
  wasted.stop()
  assert.equal(await status(held), '200')
  assert.equal(await status(await open(ask)), '200')
})
