import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, test } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { type Answered, type ModelServer, startModelServer } from '../../sandbox/model/server.ts'
import { assertBooksClosed } from '../support/audit.ts'
import { callChat, contentOf, endedRow, endedRows, framesOf, nextArrival, readContent } from '../support/chat-client.ts'
import { exampleCount } from '../support/examples.ts'
import {
  completed,
  created,
  type ScriptedUpstream,
  startScriptedUpstream,
  text,
  type UpstreamExchange,
} from '../support/scripted-upstream.ts'
import {
  type RequestBody,
  startTestService,
  type TestAccount,
  type TestService,
  withoutTools,
} from '../support/service.ts'

// A cancelled request costs its input and what was generated until the service knew of it. Prices of the default model: 1
// atomic unit for a token of input, 5 for one of output.

let service: TestService
let upstream: ScriptedUpstream
let sandboxed: TestService
let model: ModelServer
/** Every answer of the model, once it has stopped making it. */
const generated: Answered[] = []
const allStopped = Promise.withResolvers<void>()
before(async () => {
  upstream = await startScriptedUpstream()
  service = await startTestService({ upstreamUrl: upstream.url })
  // Paced, so that tokens arrive one by one.
  model = await startModelServer({
    host: '127.0.0.1',
    port: 0,
    tokensPerSecond: 1_000,
    timeToFirstTokenMs: 0,
    onAnswered: (answered) => {
      if (generated.push(answered) === streams) allStopped.resolve()
    },
  })
  sandboxed = await startTestService({ upstreamUrl: model.url })
})
after(async () => {
  try {
    await assertBooksClosed(service.database, sandboxed.database)
  } finally {
    await service.stop()
    await sandboxed.stop()
    await upstream.close()
    await model.close()
  }
})

const messages = [{ role: 'user', content: 'What is a penny?' }]
const question = { messages, stream: true, ...withoutTools }
/** As our tokenizer counts it, with the framing. */
const countedInput = 11

const tokensMax = 200
/** Cancelled at tokens that are equally far apart. */
const streams = exampleCount('CANCELLED_STREAMS', { short: 25, full: tokensMax })
const atOnce = 10

test('the blank lines that we put between paragraphs of reasoning are not billed', async () => {
  const account = await service.openAccount('25')
  const reasoning = [' one two', ' three four', ' five six'].map((delta, index) => ({
    type: 'response.reasoning_summary_text.delta',
    item_id: 'rs_1',
    output_index: 0,
    summary_index: index,
    delta,
  }))
  upstream.answer = (exchange) => exchange.send(created, ...reasoning)
  const call = callChat(service, account, question)
  for await (const frame of framesOf(await call.answer)) if (frame.includes('six')) break
  call.leave()
  const row = await endedRow(service, account)
  assert.deepEqual([row.status, row.usage?.reasoning_tokens], ['cancelled', 6])
  assert.equal(Number(row.charged_atomic), countedInput + 5 * 6)
})

test('cancelled at any of two hundred tokens, a stream costs its input and exactly the tokens generated until then', async () => {
  const accounts = await Promise.all(Array.from({ length: atOnce }, () => sandboxed.openAccount('25')))
  const tokens = Array.from({ length: streams }, (_, index) => (index + 1) * (tokensMax / streams))
  const ids = new Map<number, string>()
  const waiting = tokens.values()
  await Promise.all(
    accounts.map(async (account) => {
      for (const token of waiting) ids.set(token, await cancelAt(token, account))
    }),
  )
  const ended = await Promise.all(accounts.map((account) => endedRows(sandboxed, account, 1)))
  const rows = new Map(ended.flat().map((row) => [row.id, row]))
  const input = rows.get(ids.get(tokens[0]!)!)!.usage!.prompt_tokens
  for (const token of tokens) {
    const row = rows.get(ids.get(token)!)!
    assert.deepEqual([row.status, row.usage?.source], ['cancelled', 'counted'])
    assert.deepEqual([row.usage?.prompt_tokens, row.usage?.completion_tokens], [input, token])
    assert.equal(Number(row.charged_atomic), input + 5 * token)
    assert.equal(Number(row.refunded_atomic), Number(row.held_atomic) - input - 5 * token)
  }
  // The model's own count of what it made before it was stopped.
  await allStopped.promise
  const counts = generated.map(({ outputTokens }) => outputTokens)
  assert.deepEqual(
    counts.toSorted((one, other) => one - other),
    tokens,
  )
  for (const { ending } of generated) assert.equal(ending, 'aborted')
})

test('cancelled while tokens pour in, it costs at least what the client saw and at most what the upstream wrote', async () => {
  for (const seen of [1, 2, 10, 100, 1_000]) {
    const written = Promise.withResolvers<number>()
    upstream.answer = async (exchange) => {
      exchange.send(created)
      let tokens = 0
      for (; !exchange.outgoing.destroyed; tokens += 1) {
        exchange.send(text(' penny'))
        if (exchange.outgoing.writableNeedDrain) await Promise.race([once(exchange.outgoing, 'drain'), exchange.hungUp])
        else if (tokens % 10 === 0) await nextTurn()
      }
      written.resolve(tokens)
    }
    const account = await service.openAccount('25')
    const call = callChat(service, account, { ...question, max_tokens: 64_000 })
    await readContent(framesOf(await call.answer), seen * ' penny'.length)
    call.leave()
    const row = await endedRow(service, account)
    const tokens = row.usage!.completion_tokens
    assert.equal(Number(row.charged_atomic), countedInput + 5 * tokens)
    assert.ok(
      tokens >= seen && tokens <= (await written.promise),
      `${tokens} of ${await written.promise}, ${seen} seen`,
    )
  }
})

for (const stream of [true, false]) {
  const form = stream ? 'streamed' : 'buffered'

  test(`a client that leaves before the upstream has accepted pays nothing, ${form}`, async () => {
    const asked = Promise.withResolvers<UpstreamExchange>()
    upstream.answer = asked.resolve
    const account = await service.openAccount('25')
    const call = callChat(service, account, { ...question, stream })
    const { hungUp } = await asked.promise
    call.leave()
    await hungUp
    assertFree(await endedRow(service, account))
  })

  test(`clients that leave while their money is being held pay nothing, ${form}: no upstream is asked, no timer stays`, async () => {
    const account = await service.openAccount('25')
    const asked = upstream.exchanges.length
    const timersBefore = activeTimers()
    const leavers = 20
    await service.database.transaction(async (connection) => {
      await connection.query('select from accounts where id = $1 for update', [account.id])
      for (let leaver = 0; leaver < leavers; leaver += 1) {
        const arrival = nextArrival(account)
        const call = callChat(service, account, { ...question, stream, max_tokens: 100 })
        const { socket, read } = await arrival
        await read
        call.leave()
        await once(socket, 'close')
      }
    })
    const rows = await endedRows(service, account, leavers)
    for (const row of rows) assertFree(row)
    assert.equal(upstream.exchanges.length, asked)
    assert.ok(activeTimers() < timersBefore + leavers)
  })
}

// Node closes a request's `req` early and its `res` late; a cancel that comes with the end must be one or the other.
test('a cancel in the moment of the end ends the request once, as the one or the other', async () => {
  const outcomes = { succeeded: 10 + 5 * 5, cancelled: countedInput + 5 * 3 }
  for (let turns = -10; turns <= 10; turns += 1) {
    for (let attempt = 0; attempt < 3; attempt += 1) {
      const account = await service.openAccount('25')
      const begun = Promise.withResolvers<UpstreamExchange>()
      upstream.answer = (exchange) => {
        exchange.send(created, text('one two three'))
        begun.resolve(exchange)
      }
      const call = callChat(service, account, question)
      await readContent(framesOf(await call.answer), 'one two three'.length)
      const exchange = await begun.promise
      const end = () => {
        exchange.send(completed())
        exchange.end()
      }
      await inTurns(turns, call.leave, end)
      const row = await endedRow(service, account)
      assert.equal(Number(row.charged_atomic), outcomes[row.status as keyof typeof outcomes], row.status)
      assert.equal(await spendable(account), 25_000_000n - BigInt(row.charged_atomic))
    }
  }
})

test('a client that leaves between the last token and [DONE] pays for the whole answer, once', async () => {
  // The client has received everything; the upstream's end is on its way or has arrived.
  const lastToken = ' penny'
  upstream.answer = (exchange) => {
    exchange.send(created, text('one'), text(lastToken), completed())
    exchange.end()
  }
  for (let attempt = 0; attempt < 20; attempt += 1) {
    const account = await service.openAccount('25')
    const call = callChat(service, account, question)
    for await (const frame of framesOf(await call.answer)) {
      if (contentOf(frame) === lastToken) break
    }
    call.leave()
    const row = await endedRow(service, account)
    assert.deepEqual([row.status, row.charged_atomic, row.usage?.source], ['succeeded', '35', 'upstream'])
  }
})

/** Reads this many tokens of an answer that then pauses, and disconnects. Returns the request's id. */
async function cancelAt(token: number, account: TestAccount): Promise<string> {
  // Three digits are one token, whatever they are: the input costs the same each time.
  const pause = String(token).padStart(3, '0')
  const call = callChat(sandboxed, account, {
    messages: [{ role: 'user', content: `[sandbox:tokens ${tokensMax}] [sandbox:stall-after ${pause}]` }],
    reasoning_effort: 'none',
    max_tokens: tokensMax,
    stream: true,
  })
  const answer = await call.answer
  let seen = 0
  for await (const frame of framesOf(answer)) {
    if (contentOf(frame) !== '') seen += 1
    if (seen === token) break
  }
  call.leave()
  return String(answer.headers['x-router-request-id'])
}

/** Runs both in the same turn of the event loop, or one of them some turns before the other. */
async function inTurns(turns: number, first: () => void, second: () => void): Promise<void> {
  if (turns < 0) return inTurns(-turns, second, first)
  first()
  for (let turn = 0; turn < turns; turn += 1) await nextTurn()
  second()
}

function assertFree(row: RequestBody): void {
  assert.deepEqual([row.status, row.charged_atomic, row.usage], ['cancelled', '0', null])
}

async function spendable(account: TestAccount): Promise<bigint> {
  const [row] = await service.database.query<{ spendable: bigint }>(
    'select gateway + credit - extended as spendable from accounts where id = $1',
    [account.id],
  )
  return row!.spendable
}

function activeTimers(): number {
  return process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout').length
}
