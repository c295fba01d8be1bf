import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, get, type IncomingMessage, type ServerResponse } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { after, before, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { ServiceError } from '../errors.ts'
import { StreamReader } from './stream-reader.ts'

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

for (const version of ['1.0', '1.1']) {
  test(`an answer over HTTP/${version} arrives whole, in any script, and ends`, async () => {
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
    socket.write(`GET / HTTP/${version}\r\nhost: here\r\nconnection: close\r\n\r\n`)
    const [, outgoing] = (await once(server, 'request')) as [IncomingMessage, ServerResponse]
    const stream = readerOf(outgoing, 60_000)
    for (const text of ['Ein Pfennig', 'ペニー 🪙', '\ud83e']) stream.deliver([{ type: 'text', text }])
    stream.fail(new ServiceError('overloaded', 'over'))
    const answer = Buffer.concat(await Array.fromAsync(socket)).toString('utf8')
    const [head = '', ...body] = answer.split('\r\n\r\n')
    assert.equal(/transfer-encoding: chunked/i.test(head), version === '1.1')
    const text = version === '1.0' ? body.join('\r\n\r\n') : unchunked(Buffer.from(body.join('\r\n\r\n')))
    const contents = [...text.matchAll(/"content":("(?:[^"\\]|\\.)*")/g)].map(([, content]) => JSON.parse(content!))
    assert.deepEqual(contents, ['', 'Ein Pfennig', 'ペニー 🪙', '\ud83e'])
  })
}

/** The body of chunks, each of which must have the length that it names. */
function unchunked(bytes: Buffer): string {
  const end = bytes.indexOf('\r\n')
  const length = Number.parseInt(bytes.toString('latin1', 0, end), 16)
  const from = end + 2
  assert.equal(bytes.toString('latin1', from + length, from + length + 2), '\r\n')
  if (length === 0) return ''
  return bytes.toString('utf8', from, from + length) + unchunked(bytes.subarray(from + length + 2))
}

function readerOf(outgoing: ServerResponse, blockedMsMax: number): StreamReader {
  const head = { id: 'chatcmpl-1', created: 0, model: 'm', includeUsage: false }
  const context = { requestId: 'req_1', publicUrl: 'http://localhost' }
  const times = { streamKeepaliveMs: 60_000, keepaliveAfterMs: 60_000, blockedMsMax }
  return new StreamReader(outgoing, head, { headers: {}, ...context, ...times })
}

/** A stream with one long piece on its way. */
async function open({ blockedMsMax }: { readonly blockedMsMax: number }) {
  const asked = get({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', agent: false })
  const [, outgoing] = (await once(server, 'request')) as [IncomingMessage, ServerResponse]
  const stream = readerOf(outgoing, blockedMsMax)
  const delivered = Promise.resolve(stream.deliver([{ type: 'text', text: long }])).then(() => {
    if (!outgoing.destroyed) stream.fail(new ServiceError('overloaded', 'over'))
  })
  const [answer] = (await once(asked, 'response')) as [IncomingMessage]
  return { answer, outgoing, delivered }
}
