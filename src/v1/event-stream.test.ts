import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, get, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { createChunkRenderer } from './chat-chunks.ts'
import { EventStream } from './event-stream.ts'

const server = createServer()
before(async () => {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
})
after(() => server.close())

// More than the kernel keeps for a client that does not read.
const pieceBytes = 4 * 1024 * 1024
const long = 'x'.repeat(8 * pieceBytes)

test('a client that reads slowly is not cut off, however long one piece takes to reach it', async () => {
  const { answer, delivered } = await open({ blockedMsMax: 1_500 })
  let bytes = 0
  for await (const chunk of answer) {
    const before = bytes
    bytes += (chunk as Buffer).length
    // Less than the time a client may read nothing, but far more in total.
    if (Math.floor(before / pieceBytes) < Math.floor(bytes / pieceBytes)) await pause(300)
  }
  await delivered
  assert.ok(bytes > long.length)
})

test('a client that reads nothing is cut off, also one that goes on sending bytes', { timeout: 30_000 }, async () => {
  const { answer, outgoing, delivered } = await open({ blockedMsMax: 1_000 })
  answer.on('error', () => {})
  const sending = setInterval(() => answer.socket.write('\r\n'), 100)
  await delivered
  clearInterval(sending)
  assert.ok(outgoing.destroyed)
})

/** A stream with one long piece on its way. */
async function open({ blockedMsMax }: { readonly blockedMsMax: number }) {
  const asked = get({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', agent: false })
  const [, outgoing] = (await once(server, 'request')) as [IncomingMessage, ServerResponse]
  const renderer = createChunkRenderer({ id: 'chatcmpl-1', created: 0, model: 'm', includeUsage: false })
  const stream = new EventStream(outgoing, renderer, { headers: {}, silenceMsMax: 60_000, blockedMsMax })
  const delivered = Promise.resolve(stream.deliver([{ type: 'text', text: long }])).then(() => {
    if (!outgoing.destroyed) stream.end('')
  })
  const [answer] = (await once(asked, 'response')) as [IncomingMessage]
  return { answer, outgoing, delivered }
}
