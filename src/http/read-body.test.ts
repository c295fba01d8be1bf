import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type ClientRequest, createServer, type IncomingMessage, request } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { after, before, test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { OverloadedError } from '../errors.ts'
import { BodyBudget } from './body-budget.ts'
import { BodyTooLargeError, readJsonBytes, UploadAbortedError } from './read-body.ts'

const server = createServer()
before(async () => {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
})
after(() => {
  server.close()
  server.closeAllConnections()
})

test('a client that left before its body was asked for is not waited for', { timeout: 10_000 }, async () => {
  const { incoming, outgoing } = await upload('{', 2)
  outgoing.destroy()
  await new Promise((resolve) => incoming.once('close', resolve))
  const limits = { bytesMax: 100, readMsMax: 60_000, budget: new BodyBudget({ bytesMax: 100, smallBytesMax: 0 }) }
  await assert.rejects(readJsonBytes(incoming, limits, 'a'), UploadAbortedError)
  assert.equal(limits.budget.bytes, 0)
})

test('request bodies share one budget, counted by bytes received, not by content-length', async () => {
  const budget = new BodyBudget({ bytesMax: 100, smallBytesMax: 0 })
  const limits = { bytesMax: 1_000, readMsMax: 60_000, budget }
  const promised = await upload('12345', 900)
  const slow = readJsonBytes(promised.incoming, limits, 'a')
  const whole = await upload('"'.repeat(90), 90)
  assert.equal((await readJsonBytes(whole.incoming, limits, 'a')).length, 90)
  await untilBytes(budget, 5)
  const over = await upload('"'.repeat(96), 900)
  await assert.rejects(readJsonBytes(over.incoming, limits, 'a'), OverloadedError)
  assert.ok(over.incoming.isPaused())
  assert.equal(budget.bytes, 5)
  promised.outgoing.destroy()
  await assert.rejects(slow)
  assert.equal(budget.bytes, 0)
})

test('a small body is read however much others are sending', async () => {
  const budget = new BodyBudget({ bytesMax: 100, smallBytesMax: 50 })
  const limits = { bytesMax: 1_000, readMsMax: 60_000, budget }
  const greedy = await upload('"'.repeat(99), 900)
  const slow = readJsonBytes(greedy.incoming, limits, 'a')
  await untilBytes(budget, 99)
  const small = await upload('"'.repeat(50), 50)
  assert.equal((await readJsonBytes(small.incoming, limits, 'a')).length, 50)
  const larger = await upload('"'.repeat(51), 51)
  await assert.rejects(readJsonBytes(larger.incoming, limits, 'a'), OverloadedError)
  greedy.outgoing.destroy()
  await assert.rejects(slow)
})

test('the refusal of a body that is too large names its size and the limit', () => {
  const mebibyte = 1024 * 1024
  assert.match(new BodyTooLargeError(4 * mebibyte, 4 * mebibyte + 1).message, /is 4\.1 MiB; the limit is 4 MiB\./)
  assert.match(new BodyTooLargeError(64 * 1024).message, /is larger than the limit of 64 KiB\./)
})

test('a body that is refused, for its size or its time, gives its room back and takes none afterwards', async () => {
  const budget = new BodyBudget({ bytesMax: 100, smallBytesMax: 0 })
  const large = await upload('"'.repeat(20))
  await assert.rejects(
    readJsonBytes(large.incoming, { bytesMax: 10, readMsMax: 60_000, budget }, 'a'),
    BodyTooLargeError,
  )
  const late = await upload('"'.repeat(20), 900)
  await assert.rejects(readJsonBytes(late.incoming, { bytesMax: 1_000, readMsMax: 100, budget }, 'a'), {
    code: 'request_timeout',
  })
  assert.equal(budget.bytes, 0)
  late.outgoing.write('"'.repeat(20))
  late.incoming.resume()
  await once(late.incoming, 'data')
  assert.equal(budget.bytes, 0)
})

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

function heapBytes(): number {
  collectGarbage()
  return process.memoryUsage().heapUsed
}

test('a consumed body is released while its request is still being answered', async () => {
  const limits = { bytesMax: 1_000, readMsMax: 60_000, budget: new BodyBudget({ bytesMax: 1_000 }) }
  const { incoming } = await upload('"'.repeat(500), 500)
  const body = new WeakRef(await readJsonBytes(incoming, limits, 'a'))
  await new Promise((resolve) => setImmediate(resolve))
  collectGarbage()
  assert.equal(body.deref(), undefined)
  assert.ok(incoming.complete)
})

// Each piece that is kept takes two hundred bytes of the heap: 60 MB for these.
test('a body that arrives byte by byte uses no more memory than its length allows, and is complete', async () => {
  const bytes = 300_000
  const { port } = server.address() as AddressInfo
  const socket = connect(port, '127.0.0.1')
  socket.write('POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n')
  const [incoming] = (await once(server, 'request')) as [IncomingMessage]
  const before = heapBytes()
  const limits = { bytesMax: bytes, readMsMax: 60_000, budget: new BodyBudget({ bytesMax: bytes }) }
  const read = readJsonBytes(incoming, limits, 'a')
  const pieces = Array.from({ length: 10 }, (_, digit) => `1\r\n${digit}\r\n`).join('')
  socket.write(pieces.repeat(bytes / 10))
  await untilBytes(limits.budget, bytes)
  assert.ok(heapBytes() - before < 20_000_000)
  socket.write('0\r\n\r\n')
  assert.equal((await read).toString(), '0123456789'.repeat(bytes / 10))
})

type Upload = { readonly incoming: IncomingMessage; readonly outgoing: ClientRequest }

/** A request of which this much has been sent so far. */
async function upload(sent: string, promised?: number): Promise<Upload> {
  const { port } = server.address() as AddressInfo
  const headers = promised === undefined ? {} : { 'content-length': String(promised) }
  const outgoing = request({ host: '127.0.0.1', port, method: 'POST', headers })
  outgoing.on('error', () => {})
  outgoing.write(sent)
  const [incoming] = (await once(server, 'request')) as [IncomingMessage]
  return { incoming, outgoing }
}

async function untilBytes(budget: BodyBudget, bytes: number): Promise<void> {
  while (budget.bytes !== bytes) await new Promise((resolve) => setImmediate(resolve))
}
