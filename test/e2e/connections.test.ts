import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { endedRow } from '../support/chat-client.ts'
import { completed, created, text, type UpstreamExchange } from '../support/scripted-upstream.ts'
import { type TestAccount, withoutTools } from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'

// What else can happen on one connection besides a single request.

const blockedMsMax = 300
const messages = [{ role: 'user', content: 'What is a penny?' }]
const suite = serviceSuite({ BLOCKED_MS_MAX: String(blockedMsMax) })

test('invalid request bytes abort a stream, and are not answered in the middle of it', async () => {
  const account = await suite.service.openAccount('25')
  suite.upstream.answer = (exchange) => exchange.send(created, text('one two three'))
  const line = open()
  line.socket.write(requestOf(account, { stream: true }))
  await line.until('three')
  line.socket.write('}}')
  await once(line.socket, 'close')
  assert.deepEqual(line.received.match(/HTTP\/1\.1 \d+/g), ['HTTP/1.1 200'])
  assert.match(line.received.trimEnd(), /\}$/)
  assert.equal((await endedRow(suite.service, account)).status, 'cancelled')
})

test('invalid request bytes are a 400 when no response is in progress', async () => {
  const account = await suite.service.openAccount('25')
  suite.upstream.answer = answer
  const line = open()
  line.socket.write(requestOf(account, {}))
  await line.until('"content":"Hi"')
  await endedRow(suite.service, account)
  line.socket.write('}}')
  await once(line.socket, 'close')
  assert.deepEqual(line.received.match(/HTTP\/1\.1 \d+/g), ['HTTP/1.1 200', 'HTTP/1.1 400'])
})

test('invalid request bytes wait for the response before them, which is delivered to the client that pays for it', async () => {
  const account = await suite.service.openAccount('25')
  const asked = Promise.withResolvers<UpstreamExchange>()
  suite.upstream.answer = (exchange) => {
    exchange.send(created, text('Hi'))
    asked.resolve(exchange)
  }
  const line = open()
  line.socket.write(requestOf(account, {}))
  const exchange = await asked.promise
  line.socket.write('}}')
  line.socket.write('}}')
  // This response comes immediately: by then the bytes above were read.
  await fetch(`${suite.service.origin}/healthz`)
  exchange.send(completed())
  exchange.end()
  await once(line.socket, 'close')
  assert.deepEqual(line.received.match(/HTTP\/1\.1 \d+/g), ['HTTP/1.1 200', 'HTTP/1.1 400'])
  assert.equal((await endedRow(suite.service, account)).status, 'succeeded')
})

test('CONNECT behind a request ends the connection, and so cancels the request', async () => {
  const account = await suite.service.openAccount('25')
  const asked = Promise.withResolvers<UpstreamExchange>()
  suite.upstream.answer = asked.resolve
  const line = open()
  line.socket.write(requestOf(account, {}))
  const exchange = await asked.promise
  line.socket.write('CONNECT penny:443 HTTP/1.1\r\nhost: penny\r\n\r\n')
  await once(line.socket, 'close')
  await exchange.hungUp
  assert.equal(line.received, '')
  assert.equal((await endedRow(suite.service, account)).status, 'cancelled')
})

test('of two pipelined requests the second may take longer than a client may block', async () => {
  const account = await suite.service.openAccount('25')
  const second = Promise.withResolvers<UpstreamExchange>()
  suite.upstream.answer = (exchange) => {
    if (exchange.body.max_output_tokens === 20) answer(exchange)
    else second.resolve(exchange)
  }
  const line = open()
  line.socket.write(requestOf(account, { max_tokens: 20 }) + requestOf(account, { max_tokens: 21 }))
  await line.until('"content":"Hi"')
  await pause(3 * blockedMsMax)
  answer(await second.promise)
  await line.until('"content":"Hi"', 2)
  line.socket.destroy()
})

// Without a limit, each such connection kept hundreds of kilobytes in memory for as long as its client liked.
test('a client that reads nothing of a page is disconnected', { timeout: 60_000 }, async () => {
  const { socket } = open()
  const closed = new Promise((resolve) => socket.once('close', resolve))
  socket.pause()
  // More than the buffers of the kernel hold.
  socket.write('GET /openapi.json HTTP/1.1\r\nhost: penny\r\n\r\n'.repeat(40))
  // A client that does not read notices the end of its connection when it writes. What it writes is no sign that it reads.
  const writing = setInterval(() => socket.write('\r\n'), blockedMsMax / 3)
  await closed
  clearInterval(writing)
})

function answer(exchange: UpstreamExchange): void {
  exchange.send(created, text('Hi'), completed())
  exchange.end()
}

type Line = {
  readonly socket: Socket
  readonly received: string
  /** Resolves when these words have arrived this many times; fails if the connection is closed before. */
  until(words: string, times?: number): Promise<void>
}

function open(): Line {
  const socket = connect(Number(new URL(suite.service.origin).port), '127.0.0.1').setEncoding('utf8')
  const closed = once(socket, 'close').then(() => Promise.reject(new Error(`closed after ${line.received}`)))
  closed.catch(() => {})
  const line = {
    socket,
    received: '',
    async until(words: string, times = 1) {
      while (line.received.split(words).length <= times) await Promise.race([once(socket, 'data'), closed])
    },
  }
  socket.on('data', (received: string) => {
    line.received += received
  })
  socket.on('error', () => {})
  return line
}

function requestOf({ apiKey }: TestAccount, options: object): string {
  const body = JSON.stringify({ messages, ...withoutTools, ...options })
  const headers = [
    'host: penny',
    `authorization: Bearer ${apiKey}`,
    'content-type: application/json',
    `content-length: ${Buffer.byteLength(body)}`,
  ]
  return `POST /v1/chat/completions HTTP/1.1\r\n${headers.join('\r\n')}\r\n\r\n${body}`
}
