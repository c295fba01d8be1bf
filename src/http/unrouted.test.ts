import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, connect } from 'node:net'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { openServer } from './server.ts'
import { answerMalformed, BegunAnswers } from './unrouted.ts'

test('a client that sends too slowly gets an error envelope that names the time limit', async () => {
  const socket = new PassThrough()
  const late = Object.assign(new Error('Request timeout'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' })
  answerMalformed({ publicUrl: 'http://localhost', begun: new BegunAnswers() }, late, socket)
  const [head, body] = (await text(socket)).split('\r\n\r\n')
  assert.match(head!, /^HTTP\/1\.1 408 Request Timeout\r\n/)
  assert.match(head!, /\r\nx-request-id: req_/)
  const { error } = JSON.parse(body!)
  assert.equal(error.code, 'request_timeout')
  assert.match(error.message, /10 s for the headers and 60 s in total\. Send it again\./)
})

test('the time limit of headers is compared every second', { timeout: 15_000 }, async (t) => {
  const server = openServer(1)
  server.headersTimeout = 100
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  atEnd(t, () => server.close())
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
  socket.write('GET / HTTP/1.1\r\nhost:')
  assert.match(await text(socket), /^HTTP\/1\.1 408/)
})
