import assert from 'node:assert/strict'
import { once } from 'node:events'
import { request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { test } from 'node:test'
import { atEnd } from '../support/at-end.ts'
import { completed, created, text } from '../support/scripted-upstream.ts'
import { postChat } from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'

const suite = serviceSuite(
  { REQUESTS_MAX: '5', BODY_BYTES_MAX: '700000', BODIES_BYTES_MAX: '1048576' },
  ({ database }) =>
    database.execute(`
    create sequence moves;
    create function count_move() returns trigger language plpgsql as 'begin perform nextval(''moves''); return null; end';
    create trigger count_moves after update on accounts for each row execute function count_move()`),
)

test('requests beyond the capacity are refused as overloaded before anything is held, and the others are served', async () => {
  const { service, upstream } = suite
  const { apiKey } = await service.openAccount('25')
  const go = Promise.withResolvers<void>()
  upstream.answer = async (exchange) => {
    await go.promise
    exchange.send(created, text('Hi'), completed())
    exchange.end()
  }
  const ask = () => postChat(service, apiKey, { messages: [{ role: 'user', content: 'Hi' }] })
  const served = Array.from({ length: 5 }, ask)
  while (upstream.exchanges.length < 5) await new Promise((resolve) => setImmediate(resolve))

  const before = await moves()
  const shed = await Promise.all(Array.from({ length: 20 }, ask))
  // That they were refused is noted in the log later; no account was touched for them.
  assert.equal(await moves(), before)
  for (const answer of shed) {
    const { error } = (await answer.json()) as { error: { code: string } }
    assert.deepEqual([answer.status, error.code], [503, 'overloaded'])
    assert.equal(answer.headers.get('x-should-retry'), 'true')
    assert.ok(Number(answer.headers.get('retry-after')) <= 60)
    assert.equal(answer.headers.get('x-router-held-usdc'), null)
  }
  assert.equal(upstream.exchanges.length, 5)
  go.resolve()
  assert.deepEqual(
    (await Promise.all(served)).map(({ status }) => status),
    [200, 200, 200, 200, 200],
  )
  assert.equal((await ask()).status, 200)
})

test('bodies beyond the memory budget are refused as overloaded, on every route that reads one, and the budget is released', async (t) => {
  const { service } = suite
  const greedy = await service.openAccount('1')
  const { apiKey } = await service.openAccount('1')
  const body = `{"padding":"${'a'.repeat(600_000)}"}`
  const headersOf = (key: string) => ({ authorization: `Bearer ${key}`, 'content-type': 'application/json' })
  const sendAllButOneByte = async () => {
    const upload = request(`${service.baseUrl}/chat/completions`, {
      method: 'POST',
      headers: { ...headersOf(greedy.apiKey), 'content-length': body.length },
    })
    upload.on('error', () => {})
    // Refused: the service would read the rest of it to its end, which never comes.
    upload.on('response', () => upload.destroy())
    atEnd(t, () => upload.destroy())
    await new Promise((resolve) => upload.write(body.slice(0, -1), resolve))
    return upload
  }
  let upload = await sendAllButOneByte()
  const ask = (path: string, key = apiKey) =>
    fetch(`${service.baseUrl}${path}`, { method: 'POST', headers: headersOf(key), body })
  // The service may read the body of the quote first: then the upload finds no room, is refused, and is sent again.
  while ((await ask('/quote')).status !== 503) if (upload.closed) upload = await sendAllButOneByte()
  for (const path of ['/quote', '/chat/completions']) {
    const answer = await ask(path)
    const { error } = (await answer.json()) as { error: { code: string } }
    assert.deepEqual([answer.status, error.code, answer.headers.get('retry-after')], [503, 'overloaded', '1'], path)
    // The account that uses up the room gets an error that says so.
    const own = await ask(path, greedy.apiKey)
    assert.deepEqual([own.status, own.headers.get('retry-after')], [429, '1'], path)
  }
  upload.destroy()
  while ((await ask('/quote')).status === 503) await new Promise((resolve) => setImmediate(resolve))
  assert.equal((await ask('/chat/completions')).status, 400)
})

test('more connections than twice the requests, and more than a thousand, are closed at once, and the others are served', async (t) => {
  const { service } = suite
  const { port } = new URL(service.origin)
  const sockets: Socket[] = []
  atEnd(t, () => {
    for (const socket of sockets) socket.destroy()
  })
  const closed = Promise.withResolvers<void>()
  while (sockets.length < 1_001) {
    const socket = connect(Number(port), '127.0.0.1')
    sockets.push(socket)
    socket.on('error', () => {}).once('close', closed.resolve)
    await once(socket, 'connect')
  }
  await closed.promise
  const [first] = sockets
  first!.write('GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n')
  const [answer] = (await once(first!, 'data')) as [Buffer]
  assert.match(answer.toString(), /^HTTP\/1\.1 200 /)
})

/** How often an account has been written so far. */
async function moves(): Promise<bigint> {
  const [row] = await suite.service.database.query<{ count: bigint }>('select last_value as count from moves')
  return row!.count
}
