import assert from 'node:assert/strict'
import { EventEmitter, once } from 'node:events'
import { createServer, request, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { type TestContext, test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { getRequestListener } from '@hono/node-server'
import { Hono } from 'hono'
import { atEnd } from '../../test/support/at-end.ts'
import { OverloadedError } from '../errors.ts'
import { ShareUsedUpError } from '../fairness/shares.ts'
import { responseClosed } from '../http/disconnect.ts'
import type { HonoBindings } from '../http/hono.ts'
import { Downloads } from './downloads.ts'

test('an account gets a share of the downloads, so that others get theirs', async (t) => {
  const server = await startServer(t, { filesMax: 8, blockedMsMax: 60_000 })
  const [first] = [await server.open('a'), await server.open('a')]
  assert.equal(await server.status('a'), 429)
  await server.open('b')
  await server.open('b')
  assert.equal(await server.status('b'), 429)
  for (const account of ['c', 'c', 'd', 'd']) await server.open(account)
  assert.equal(await server.status('e'), 503)
  const ended = server.ended('a')
  first.destroy()
  await ended
  await server.open('e')
})

test('a HEAD request for a file takes no download slot', async (t) => {
  const server = await startServer(t, { filesMax: 1, blockedMsMax: 60_000 })
  for (let time = 0; time < 3; time += 1) assert.equal(await server.status('a', 'HEAD'), 200)
})

test('a client that reads nothing is disconnected, and its download slot is free again', async (t) => {
  const server = await startServer(t, { filesMax: 1, blockedMsMax: 200 })
  const ended = server.ended('a')
  const socket = await server.open('a')
  await ended
  await once(socket.resume(), 'close')
  await server.open('b')
})

test('a client that always reads something, but less than 16 bytes per millisecond, is disconnected', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] })
  let isConnected = true
  const outgoing = Object.assign(new EventEmitter(), { req: { socket: { destroy: () => (isConnected = false) } } })
  async function* pieces() {
    for (;;) yield 'x'.repeat(160_000)
  }
  const file = { text: pieces(), type: 'text/plain', name: 'file.txt' }
  const reader = { owner: { partition: 0, accountId: 'a' }, outgoing: outgoing as unknown as ServerResponse }
  const body = new Downloads({ filesMax: 1, blockedMsMax: 1_000 }).start(reader, file).body!.getReader()
  for (let read = 0; read < 5; read += 1) {
    await body.read()
    await setImmediate()
    t.mock.timers.tick(10_900)
    assert.ok(isConnected)
  }
  t.mock.timers.tick(200)
  assert.ok(!isConnected)
  await body.cancel()
})

test('a client that has left keeps its place until the query that runs for it has ended', async (t) => {
  const server = await startServer(t, { filesMax: 1, blockedMsMax: 60_000 })
  const searching = await server.open('searching')
  const left = server.left
  searching.destroy()
  await left
  assert.equal(await server.status('b'), 503)
  const ended = server.ended('searching')
  server.findNothing()
  await ended
  await server.open('b')
})

test('a slowly produced file does not disconnect its reader', async (t) => {
  const server = await startServer(t, { filesMax: 1, blockedMsMax: 250 })
  const answer = await fetch(`${server.origin}/slow`)
  assert.equal(await answer.text(), 'first\nlast\n')
})

/** Files without an end, by the name of the account. The one of `searching` finds nothing after its first line, again and again. */
async function startServer(t: TestContext, limits: { filesMax: number; blockedMsMax: number }) {
  const downloads = new Downloads(limits)
  const endings = new Map<string, () => void>()
  const left = Promise.withResolvers<void>()
  const search = Promise.withResolvers<void>()
  async function* lines(account: string): AsyncGenerator<string> {
    try {
      if (account === 'searching') {
        yield 'first\n'
        await search.promise
        for (;;) yield ''
      }
      if (account !== 'slow') for (;;) yield 'a line of the file\n'.repeat(500)
      yield 'first\n'
      await new Promise((resolve) => setTimeout(resolve, 3 * limits.blockedMsMax))
      yield 'last\n'
    } finally {
      endings.get(account)?.()
    }
  }
  const app = new Hono<HonoBindings>()
  app.get('/:account', (context) => {
    const accountId = context.req.param('account')
    const file = { text: lines(accountId), type: 'text/plain', name: 'file.txt' }
    const { outgoing } = context.env
    if (accountId === 'searching') void responseClosed(outgoing).then(left.resolve)
    return downloads.start({ owner: { partition: 0, accountId }, outgoing }, file)
  })
  app.onError((error, context) => context.body(null, statusOf(error)))
  const server = createServer(getRequestListener(app.fetch, { overrideGlobalObjects: false }))
  atEnd(t, () => {
    server.close()
    server.closeAllConnections()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    origin: `http://127.0.0.1:${port}`,
    /** Begins to fetch a file and stops reading. */
    async open(account: string): Promise<Socket> {
      const socket = connect(port, '127.0.0.1')
      atEnd(t, () => socket.destroy())
      socket.on('error', () => {})
      socket.write(`GET /${account} HTTP/1.1\r\nhost: localhost\r\n\r\n`)
      const [head] = (await once(socket, 'data')) as [Buffer]
      socket.pause()
      assert.match(head.toString(), /^HTTP\/1\.1 200 /)
      return socket
    },
    async status(account: string, method = 'GET'): Promise<number> {
      const outgoing = request({ host: '127.0.0.1', port, path: `/${account}`, method, agent: false }).end()
      const [answer] = await once(outgoing, 'response')
      answer.destroy()
      return answer.statusCode
    },
    left: left.promise,
    findNothing: search.resolve,
    /** When the lines of an account's file are no longer made. */
    ended: (account: string) => new Promise<void>((resolve) => endings.set(account, resolve)),
  }
}

function statusOf(error: unknown): 429 | 503 | 500 {
  if (error instanceof ShareUsedUpError) return 429
  return error instanceof OverloadedError ? 503 : 500
}
