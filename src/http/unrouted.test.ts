import assert from 'node:assert/strict'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { test } from 'node:test'
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
