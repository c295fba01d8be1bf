import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { after, before, test } from 'node:test'
import { TcpProxy } from './tcp-proxy.ts'

// The fault tests rely on this: with a proxy that does nothing, they would all pass.

const heard: string[] = []
const server = createServer({ allowHalfOpen: true }, (socket) => {
  socket.on('error', () => {})
  socket.on('data', (bytes) => {
    heard.push(String(bytes))
    socket.write(`re:${bytes}`)
  })
  socket.on('end', () => socket.end())
})
let proxy: TcpProxy
before(async () => {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  proxy = await TcpProxy.open(() => ({ host: '127.0.0.1', port: (server.address() as AddressInfo).port }))
})
after(async () => {
  await proxy.close()
  server.close()
})

type Ending = { readonly said: string; readonly how: 'end' | 'reset' }

/** Sends text over a new connection and returns everything received until its end. */
async function say(words: readonly string[], hangUp = false): Promise<Ending> {
  const socket = connect({ host: '127.0.0.1', port: proxy.port, allowHalfOpen: true })
  const ending = collect(socket)
  for (const word of words) {
    socket.write(word)
    // One chunk each: texts written in the same turn arrive together.
    await Promise.race([once(socket, 'data'), ending])
  }
  if (hangUp) socket.end()
  return ending
}

function collect(socket: Socket): Promise<Ending> {
  return new Promise((resolve) => {
    let said = ''
    socket.on('data', (bytes) => (said += bytes))
    socket.on('end', () => resolve({ said, how: 'end' }))
    socket.on('error', () => resolve({ said, how: 'reset' }))
  })
}

test('data without a fault arrives complete, with its end', async () => {
  void proxy.use({ type: 'pass' })
  assert.deepEqual(await say(['one', 'two'], true), { said: 're:onere:two', how: 'end' })
})

test('delayed data arrives', async () => {
  void proxy.use({ type: 'delay', ms: 30 })
  assert.deepEqual(await say(['late'], true), { said: 're:late', how: 'end' })
})

test('a refused connection is reset', async () => {
  void proxy.use({ type: 'refuse' })
  assert.deepEqual(await say(['hello']), { said: '', how: 'reset' })
})

test('a cut at a byte lets through what comes before it', async () => {
  const fired = proxy.use({ type: 'cut-at-byte', from: 'server', bytes: 5, how: 'close' })
  assert.deepEqual(await say(['one', 'two']), { said: 're:on', how: 'end' })
  await fired
})

test('a lost reply: the server has received the request, the client does not know', async () => {
  const fired = proxy.use({ type: 'cut-on', pattern: 'commit', when: 'reply-lost' })
  heard.length = 0
  const ending = await say(['begin ', 'com', 'mit'])
  assert.equal(ending.how, 'reset')
  assert.doesNotMatch(ending.said, /mit/)
  assert.equal(heard.join(''), 'begin commit')
  await fired
})

test('an unheard request never reaches the server; the fault applies once', async () => {
  const fired = proxy.use({ type: 'cut-on', pattern: 'commit', when: 'unheard' })
  heard.length = 0
  assert.equal((await say(['commit'])).how, 'reset')
  assert.deepEqual(heard, [])
  await fired
  assert.deepEqual(await say(['commit'], true), { said: 're:commit', how: 'end' })
})

test('a late request reaches the server after its client has given up; the fault applies once', async () => {
  const fired = proxy.use({ type: 'deliver-late', pattern: 'commit', ms: 50 })
  heard.length = 0
  assert.deepEqual(await say(['begin ', 'com', 'mit']), { said: 're:begin re:com', how: 'reset' })
  await fired
  assert.deepEqual(await say(['commit'], true), { said: 're:commit', how: 'end' })
  // Not even a proxy that cuts everything stops it.
  proxy.cutAll('reset')
  await proxy.delivered()
  // The late part and the second connection come in either order: nothing makes the one wait for the other.
  assert.deepEqual(heard.toSorted(), ['begin ', 'com', 'commit', 'mit'])
})

test('a half-closed connection still receives its client’s data', async () => {
  void proxy.use({ type: 'pass' })
  const socket = connect({ host: '127.0.0.1', port: proxy.port, allowHalfOpen: true })
  const ending = collect(socket)
  socket.write('one')
  await once(socket, 'data')
  assert.equal(proxy.cutAll('half-close'), 1)
  assert.equal((await ending).how, 'end')
  heard.length = 0
  socket.end('two')
  while (heard.length === 0) await new Promise(setImmediate)
  assert.deepEqual(heard, ['two'])
  socket.destroy()
})

test('open connections are reset on request', async () => {
  const socket = connect({ host: '127.0.0.1', port: proxy.port })
  const ending = collect(socket)
  socket.write('one')
  await once(socket, 'data')
  proxy.cutAll('reset')
  assert.equal((await ending).how, 'reset')
})
