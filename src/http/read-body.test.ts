import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type IncomingMessage, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, test } from 'node:test'
import { readJsonBytes, UploadCutError } from './read-body.ts'

const server = createServer()
before(async () => {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
})
after(() => server.close())

test('a client that left before its body was asked for is not waited for', { timeout: 10_000 }, async () => {
  const { port } = server.address() as AddressInfo
  const outgoing = request({ host: '127.0.0.1', port, method: 'POST', headers: { 'content-length': '2' } })
  outgoing.on('error', () => {})
  outgoing.write('{')
  const [incoming] = (await once(server, 'request')) as [IncomingMessage]
  outgoing.destroy()
  await new Promise((resolve) => incoming.once('close', resolve))
  const limits = { bytesMax: 100, readMsMax: 60_000 }
  await assert.rejects(readJsonBytes(incoming, limits), UploadCutError)
})
