import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect } from 'node:net'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../test/support/at-end.ts'
import { ask } from '../test/support/gateway.ts'
import { type Route, startJsonServer } from './json-server.ts'

async function start(t: TestContext): Promise<{ readonly url: string; readonly port: number }> {
  const server = await startJsonServer({
    host: '127.0.0.1',
    port: 0,
    routes: new Map<string, Route>([
      ['POST /echo', async ({ body }) => ({ status: 200, body })],
      ['GET /things/:id', async ({ path, query }) => ({ status: 200, body: { path, query: [...query] } })],
      ['GET /broken', () => Promise.reject(new Error('broken'))],
    ]),
    answerError: (error) => ({ status: 500, body: { message: String(error) } }),
  })
  atEnd(t, () => server.close())
  return { url: `http://127.0.0.1:${server.port}`, port: server.port }
}

test('a path with one more part behind it is found, any other is not', async (t) => {
  const { url } = await start(t)
  const { body } = await ask(url, '/things/7?a=b')
  assert.deepEqual(body, { path: '/things/7', query: [['a', 'b']] })
  for (const path of ['/', '/nothing', '/things', '/things/7/8', '/../etc', '/echo/']) {
    assert.equal((await ask(url, path)).status, 404, path)
  }
  assert.equal((await ask(url, '/echo')).status, 405)
  assert.equal((await ask(url, '/broken')).status, 500)
})

test('invalid JSON and too large bodies are refused, and the connection stays open', async (t) => {
  const { url } = await start(t)
  for (const body of ['', '{', 'nothing', '{"a":1}x', '\u0000']) {
    const answer = await ask(url, '/echo', body)
    assert.equal(answer.status, 400, JSON.stringify(body))
    assert.equal(typeof answer.body.message, 'string')
  }
  assert.equal((await ask(url, '/echo', JSON.stringify('x'.repeat(300_000)))).status, 413)
  const latin = await fetch(`${url}/echo`, { method: 'POST', body: Buffer.from([0x22, 0xff, 0x22]) })
  assert.equal(latin.status, 400)
  assert.deepEqual((await ask(url, '/echo', { a: 1 })).body, { a: 1 })
})

test('invalid requests and early disconnects do not affect other clients', async (t) => {
  const { url, port } = await start(t)
  for (const bytes of ['GET', 'POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf', '\0\0\0\r\n\r\n']) {
    const socket = connect(port, '127.0.0.1')
    await once(socket, 'connect')
    socket.end(bytes)
    socket.resume()
    await once(socket, 'close')
  }
  assert.deepEqual((await ask(url, '/echo', [1])).body, [1])
})
