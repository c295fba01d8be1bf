import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import type { RequestListener } from 'node:http'
import { after, test } from 'node:test'
import { strangeWeb } from '../../test/support/strange-web.ts'
import { createSafePost, type SafePost, safePostLimits } from './safe-post.ts'
import { FetchFailedError } from './web-fetch.ts'

const web = strangeWeb()
after(() => web.close())
const never = new AbortController().signal
const fixture = (name: string) => readFileSync(new URL(`./__fixtures__/tls/${name}`, import.meta.url), 'utf8')
const credentials = { key: fixture('site.key'), cert: fixture('site.pem') }
const url = new URL('https://secure.example/hook')

function safePost(): SafePost {
  const { resolve, dial } = web
  return createSafePost({
    resolve,
    dial,
    ownHosts: [],
    ownAddresses: [],
    authorities: fixture('ca.pem'),
    userAgent: 'test',
    allowsLoopback: false,
    limits: safePostLimits,
  })
}

const message = (sender: string) => ({ headers: {}, body: '{}', sender })

/** Answers at an address of its own. Returns how many connections were made to it. */
async function receiver(address: string, listener: RequestListener): Promise<() => number> {
  web.name('secure.example', [address])
  await web.serveEncrypted(address, credentials, listener)
  return () => web.dialled.filter((dialled) => dialled === address).length
}

test('messages of one sender share a connection, and those of another sender do not', async () => {
  const connections = await receiver('93.184.215.40', (request, response) => {
    request.resume()
    response.end('thanks')
  })
  const post = safePost()
  for (let count = 0; count < 3; count += 1)
    assert.deepEqual(await post(url, message('one'), never), { status: 200, text: 'thanks' })
  assert.equal(connections(), 1)
  await post(url, message('two'), never)
  assert.equal(connections(), 2)
})

test('a kept connection that the receiver has closed is replaced, and the message arrives', async () => {
  let served = 0
  const connections = await receiver('93.184.215.41', (request, response) => {
    request.resume()
    served += 1
    // The second request on a connection is dropped without an answer.
    if (served === 2) request.socket.destroy()
    else response.end()
  })
  const post = safePost()
  await post(url, message('one'), never)
  assert.equal((await post(url, message('one'), never)).status, 200)
  assert.deepEqual([served, connections()], [3, 2])
})

test('a receiver that drops every message fails it after one attempt on a new connection', async () => {
  const connections = await receiver('93.184.215.42', (request) => request.socket.destroy())
  await assert.rejects(safePost()(url, message('one'), never), FetchFailedError)
  assert.equal(connections(), 1)
})

test('a name that resolves to this machine at the second lookup is not called, and redirects are not followed', async () => {
  const reached = await web.canary(['127.0.0.1'])
  await receiver('93.184.215.43', (request, response) => {
    request.resume()
    response.writeHead(302, { location: 'http://127.0.0.1/', connection: 'close' }).end()
  })
  const post = safePost()
  assert.equal((await post(url, message('one'), never)).status, 302)
  web.name('secure.example', ['127.0.0.1'])
  await assert.rejects(post(url, message('one'), never), FetchFailedError)
  web.name('secure.example', ['93.184.215.43', '127.0.0.1'])
  await assert.rejects(post(url, message('one'), never), FetchFailedError)
  assert.equal(reached(), 0)
})

test('an answer that is too long is cut, and its connection is not used again', async () => {
  const connections = await receiver('93.184.215.44', (request, response) => {
    request.resume()
    response.end('x'.repeat(safePostLimits.wireBytesMax + 1))
  })
  const post = safePost()
  for (let count = 0; count < 2; count += 1)
    assert.equal((await post(url, message('one'), never)).text.length, safePostLimits.decodedBytesMax)
  assert.equal(connections(), 2)
})
