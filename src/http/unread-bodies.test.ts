import assert from 'node:assert/strict'
import { EventEmitter, once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { sendJsonEarly } from './send.ts'
import { UnreadBodies } from './unread-bodies.ts'

const bodyBytes = 8 * 1024 * 1024

/** A server that refuses every body unread and throws away the rest within the rate of the network; its clock stands still. */
async function startRefusing(context: TestContext) {
  const unread = new UnreadBodies({ now: () => 0 })
  const server = createServer((incoming, outgoing) => {
    const response = { status: 402, headers: {}, body: { error: 'no money' } }
    void sendJsonEarly(outgoing, response, () => unread.discard(incoming, 'network'))
  })
  const accepted: Socket[] = []
  server.on('connection', (socket) => accepted.push(socket))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  atEnd(context, () => server.close())
  const upload = async () => {
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
    socket.on('error', () => {}).resume()
    socket.write(`POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: ${bodyBytes}\r\n\r\n`)
    socket.write(Buffer.alloc(bodyBytes))
    let received = ''
    socket.on('data', (bytes: Buffer) => (received += bytes))
    await new Promise<void>((resolve) => socket.once('close', resolve))
    return { received, bytesRead: accepted.at(-1)!.bytesRead }
  }
  return { unread, upload }
}

/** A body of a few bytes. */
async function discardShort(unread: UnreadBodies, network: string): Promise<void> {
  const incoming = Object.assign(new EventEmitter(), { complete: false, destroyed: false, resume() {}, pause() {} })
  const discarded = unread.discard(incoming as unknown as IncomingMessage, network)
  incoming.emit('end')
  await discarded
}

test('the rest of a refused body is read, so that its client gets the answer; above the rate of the network the connection is reset', async (context) => {
  const { unread, upload } = await startRefusing(context)
  const within = await upload()
  assert.match(within.received, /^HTTP\/1\.1 402 /)
  assert.ok(within.bytesRead > bodyBytes)
  for (let count = 0; count < 2_048; count += 1) await discardShort(unread, 'another network')
  assert.ok((await upload()).bytesRead > bodyBytes, 'what another network sends does not count')
  for (let count = 0; count < 2_048; count += 1) await discardShort(unread, 'network')
  assert.ok((await upload()).bytesRead < bodyBytes, 'the connection was closed with most of the body unread')
})
