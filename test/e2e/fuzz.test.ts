import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect } from 'node:net'
import { Readable } from 'node:stream'
import { after, before, test } from 'node:test'
import fc from 'fast-check'
import { Pool } from 'undici'
import { errorCodes } from '../../src/errors.ts'
import { assertBooksClosed } from '../support/audit.ts'
import { chatBodies } from '../support/chat-bodies.ts'
import { exampleCount, seedOf } from '../support/examples.ts'
import { startTestService, type TestAccount, type TestService } from '../support/service.ts'
import { untilFits } from '../support/until.ts'

let service: TestService
let pool: Pool
before(async () => {
  service = await startTestService({ environment: { BODY_BYTES_MAX: '100000' } })
  pool = new Pool(service.origin, { connections: lanes, pipelining: 1 })
})
after(async () => {
  await pool.destroy()
  await service.stop()
})

const lanes = 8
const count = exampleCount('FUZZED_BODIES', { short: 1_000, full: 2_000, all: 10_000 })
/** So many that an account's money is never what a request is about. */
const requestsPerAccount = 500

const oddTexts = [
  '\0',
  '\ud83e',
  '👩‍👩‍👧‍👦',
  '\u202e',
  '\ufeff',
  'data: [DONE]\n\n',
  '<|endoftext|>',
  '漢字'.repeat(2_000),
  ' '.repeat(20_000),
]
const oddJson = [
  '1e400',
  '-0',
  '00',
  'NaN',
  '9'.repeat(400),
  "'a'",
  '"',
  ',',
  '[',
  '}',
  '/**/',
  '\\',
  '"__proto__":',
  '['.repeat(100),
]
const oddBytes = [[0], [0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf5], [0xe2, 0x82], [0x80]]

/** What replaces a part of the bytes, which may be none or all of them. */
const edits = fc.record({
  at: fc.double({ min: 0, max: 1, noNaN: true }),
  length: fc.oneof(fc.constantFrom(0, 1, 100_000), fc.nat(50)),
  piece: fc.oneof(
    fc.constantFrom(...oddTexts, ...oddJson).map((text) => Buffer.from(text)),
    fc.constantFrom(...oddBytes).map((bytes) => Buffer.from(bytes)),
    fc.uint8Array({ maxLength: 3 }),
  ),
})

const contentTypes = [
  '',
  'text/plain',
  'APPLICATION/JSON',
  'application/json;charset=latin1',
  ' application/json ; x',
  'application/vnd.penny+json',
  'application/x-www-form-urlencoded',
  'multipart/form-data; boundary=x',
  `application/json;${'x'.repeat(2_000)}`,
]
const json = { 'content-type': 'application/json' }

const requests = fc.record({
  body: fc
    .tuple(chatBodies(), fc.oneof({ weight: 4, arbitrary: fc.constant([]) }, fc.array(edits, { maxLength: 3 })))
    .map(([body, all]) =>
      all.reduce(
        (bytes, { at, length, piece }) => {
          const from = Math.floor(at * bytes.length)
          return Buffer.concat([bytes.subarray(0, from), piece, bytes.subarray(from + length)])
        },
        Buffer.from(JSON.stringify(body)),
      ),
    ),
  headers: fc.oneof(
    { weight: 30, arbitrary: fc.constant(json) },
    fc.constantFrom(...contentTypes).map((type) => ({ 'content-type': type })),
    fc.constantFrom({}, { ...json, 'content-encoding': 'gzip' }, { ...json, accept: 'image/png' }),
  ),
  // In one piece, in chunks of unknown total length, or aborted before its end.
  delivery: fc.oneof({ weight: 9, arbitrary: fc.constant('whole') }, fc.constantFrom('chunked', 'chunked', 'cut')),
})

type FuzzedRequest = typeof requests extends fc.Arbitrary<infer Request> ? Request : never

// FUZZED_BODIES=250000 for the long form, TEST_SEED to repeat one.
test('every input gets a completion or a clean refusal, every one is counted, and the ledger balances', async () => {
  const answers: Record<string, number> = {}
  const lane = async (seed: number) => {
    let account: TestAccount
    let sent = 0
    const property = fc.asyncProperty(requests, async (request) => {
      if (sent % requestsPerAccount === 0) account = await service.openAccount('25')
      sent += 1
      const kind = await send(account, request)
      answers[kind] = (answers[kind] ?? 0) + 1
    })
    // What was sent cannot be taken back, so nothing is shrunk.
    await fc.assert(property, { seed, numRuns: Math.ceil(count / lanes), endOnFailure: true })
  }
  await Promise.all(Array.from({ length: lanes }, (_, number) => lane(seedOf('TEST_SEED') + number)))
  // A fuzzer that is refused at the door proves nothing.
  for (const kind of ['200', '400 invalid_json', '400 invalid_value', '404 model_not_found', 'cut'])
    assert.ok((answers[kind] ?? 0) > count / 1_000, `${kind}: ${answers[kind]}`)
  await assertCounted(answers)
  await assertBooksClosed(service.database)
})

/** What its answer says: `200`, `400 invalid_json`, …; `cut` for an upload that was given up. */
async function send(account: TestAccount, { body, headers, delivery }: FuzzedRequest): Promise<string> {
  const all = { authorization: `Bearer ${account.apiKey}`, ...headers }
  if (delivery === 'cut') {
    await giveUp(body, all)
    return 'cut'
  }
  const middle = body.length >>> 1
  const answer = await pool.request({
    method: 'POST',
    path: '/v1/chat/completions',
    headers: all,
    body: delivery === 'chunked' ? Readable.from([body.subarray(0, middle), body.subarray(middle)]) : body,
  })
  const id = answer.headers['x-router-request-id']
  assert.match(String(id), /^req_[0-9a-f]{32}$/)
  const text = await answer.body.text()
  if (answer.statusCode === 200) {
    assertCompletion(answer.headers['content-type'], text)
    return '200'
  }
  const { error } = JSON.parse(text)
  assert.ok(answer.statusCode >= 400 && answer.statusCode < 500 && errorCodes.includes(error.code), text)
  assert.equal(error.request_id, id)
  return `${answer.statusCode} ${error.code}`
}

/** Announces the whole body and one byte more, and disconnects after the body. */
async function giveUp(body: Buffer, headers: Readonly<Record<string, string>>): Promise<void> {
  const socket = connect(Number(new URL(service.origin).port), 'localhost')
  const lines = Object.entries({ host: 'localhost', 'content-length': body.length + 1, ...headers })
  socket.write(`POST /v1/chat/completions HTTP/1.1\r\n${lines.map((line) => line.join(': ')).join('\r\n')}\r\n\r\n`)
  socket.on('error', () => {})
  socket.end(body)
  socket.resume()
  await once(socket, 'close')
}

function assertCompletion(contentType: unknown, text: string): void {
  if (!String(contentType).startsWith('text/event-stream')) {
    assert.equal(JSON.parse(text).object, 'chat.completion')
    return
  }
  const frames = text.split('\n\n')
  assert.deepEqual(frames.splice(-2), ['data: [DONE]', ''])
  for (const frame of frames) assert.equal(JSON.parse(frame.slice('data: '.length)).object, 'chat.completion.chunk')
}

/** Refusals are written into the log in the background. Beyond a hundred a minute, those of a key are only counted, in the hourly sums. */
async function assertCounted(answers: Readonly<Record<string, number>>): Promise<void> {
  const expected = Object.entries(answers)
    .filter(([kind]) => /^(200|400|402|404|422|429)\b/.test(kind))
    .reduce((sum, [, count]) => sum + count, 0)
  await untilFits(
    async () => {
      const [row] = await service.database.query<{ count: bigint }>(
        'select coalesce(sum(succeeded + failed + cancelled + refused), 0)::bigint as count from usage_hours',
      )
      return Number(row!.count)
    },
    (logged) => logged === expected,
  )
}
