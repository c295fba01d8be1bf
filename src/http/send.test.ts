import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { test } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { atEnd } from '../../test/support/at-end.ts'
import { disconnectWhenBlocked } from './send.ts'

test('a client that reads nothing is cut off when its time is over, not up to twice as late', async (t) => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  atEnd(t, () => server.close())
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1').pause()
  atEnd(t, () => client.destroy())
  client.write('GET / HTTP/1.1\r\nhost: penny\r\n\r\n')
  const [, outgoing] = (await once(server, 'request')) as [IncomingMessage, ServerResponse]
  t.mock.timers.enable({ apis: ['setInterval'] })
  disconnectWhenBlocked(outgoing, 30_000)
  // The kernel takes the first part of it, and no more while the client does not read.
  outgoing.write(Buffer.alloc(64 * 1024 * 1024))
  await nextTurn()
  t.mock.timers.tick(32_000)
  assert.equal(outgoing.req.socket.destroyed, false)
  t.mock.timers.tick(2_000)
  assert.equal(outgoing.req.socket.destroyed, true)
})
