import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { callChat, endedRows, framesOf } from '../support/chat-client.ts'
import { completed, created, failedEvent, text, type UpstreamExchange } from '../support/scripted-upstream.ts'
import {
  type RequestBody,
  startTestService,
  type TestAccount,
  type TestService,
  withoutTools,
} from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'

// A cancel before output is free while the account's allowance of the hour covers its input: 0.01 USDC and 1 % of what the account has
// been charged, at most 0.10 USDC. All processes share it.

const nodes: TestService[] = []
const suite = serviceSuite({}, async (service) => {
  nodes.push(service)
  for (let node = 0; node < 2; node += 1) {
    nodes.push(await startTestService({ upstreamUrl: suite.upstream.url, besideOf: service }))
  }
})
after(async () => {
  await Promise.all(nodes.slice(1).map((node) => node.stop()))
})

/** A prompt of 3,000 tokens and 6 of framing; an input token of this model costs 5 atomic units. */
const long = { messages: [{ role: 'user', content: ' penny'.repeat(3_000) }], model: 'gpt-6-astra', max_tokens: 100 }
const longPrice = 5 * 3_006
/** As `long`, with 1,500 tokens. */
const medium = { ...long, messages: [{ role: 'user', content: ' penny'.repeat(1_500) }] }
const mediumPrice = 5 * 1_506

type Moment = 'before the first byte' | 'after the head'

/** Leaves when the upstream has the request and has written nothing, or only the head of its answer. */
async function cancel(node: TestService, account: TestAccount, body: object, moment: Moment): Promise<void> {
  const asked = Promise.withResolvers<UpstreamExchange>()
  suite.upstream.answer = asked.resolve
  const call = callChat(node, account, { stream: true, ...withoutTools, ...body })
  const { hungUp, send } = await asked.promise
  if (moment === 'after the head') {
    send(created)
    await framesOf(await call.answer).next()
  }
  call.leave()
  await hungUp
}

function charges(rows: readonly RequestBody[]): [number, string | undefined][] {
  return rows.map(({ charged_atomic, error }) => [Number(charged_atomic), error?.code])
}

for (const moment of ['before the first byte', 'after the head'] as const) {
  test(`cancels ${moment} on three nodes share one allowance: what exceeds it pays its input, and the row says why`, async () => {
    const account = await suite.service.openAccount('25')
    for (let turn = 0; turn < 6; turn += 1) {
      await cancel(nodes[turn % 3]!, account, medium, moment)
      await endedRows(suite.service, account, turn + 1)
    }
    const rows = await endedRows(suite.service, account, 6)
    for (const { status } of rows) assert.equal(status, 'cancelled')
    // One is free: two would cost more than 0.01 USDC. What the others pay raises the allowance by a hundredth of it.
    const charged = [mediumPrice, 'cancel_allowance_spent']
    assert.deepEqual(charges(rows), [[0, undefined], ...Array(5).fill(charged)])
    assert.deepEqual(
      rows.slice(1).map(({ usage }) => [usage?.prompt_tokens, usage?.completion_tokens, usage?.source]),
      Array(5).fill([1_506, 0, 'counted']),
    )
    const other = await suite.service.openAccount('25')
    await cancel(nodes[0]!, other, medium, moment)
    assert.deepEqual(charges(await endedRows(suite.service, other, 1)), [[0, undefined]])
  })
}

test('one prompt that costs more than the allowance is charged, also when it is the first', async () => {
  const account = await suite.service.openAccount('25')
  await cancel(nodes[0]!, account, long, 'before the first byte')
  await cancel(nodes[1]!, account, medium, 'before the first byte')
  const rows = await endedRows(suite.service, account, 2)
  assert.deepEqual(charges(rows), [
    [longPrice, 'cancel_allowance_spent'],
    [0, undefined],
  ])
})

test('the allowance grows by 1 % of what the account was charged, and is whole again after an hour', async () => {
  const account = await suite.service.openAccount('25')
  suite.upstream.answer = ({ send, end }) => {
    send(created, text('A coin.'), completed({ input_tokens: 10, output_tokens: 35_000, total_tokens: 35_010 }))
    end()
  }
  const paid = callChat(nodes[0]!, account, { ...medium, max_tokens: 35_000 })
  await (await paid.answer).toArray()
  const [{ charged_atomic: charged } = assert.fail()] = await endedRows(suite.service, account, 1)
  const freeMax = Math.floor((10_000 + Number(charged) / 100) / mediumPrice)
  assert.ok(freeMax === 2, `${charged} was charged`)
  const cancels = async (count: number) => {
    for (let turn = 0; turn < count; turn += 1) await cancel(nodes[turn % 3]!, account, medium, 'after the head')
  }
  await cancels(freeMax + 1)
  const rows = await endedRows(suite.service, account, freeMax + 2)
  assert.equal(rows.slice(1).filter(({ charged_atomic }) => charged_atomic === '0').length, freeMax)
  await suite.service.database.query(
    "update accounts set spared_since = spared_since - interval '1 hour' where id = $1 and partition = $2",
    [account.id, account.partition],
  )
  await cancels(1)
  const [last] = (await endedRows(suite.service, account, freeMax + 3)).slice(-1)
  assert.equal(last!.charged_atomic, '0')
})

test('requests that were never sent and failures use no allowance and are free without it', async () => {
  const account = await suite.service.openAccount('25')
  for (let turn = 0; turn < 2; turn += 1) await cancel(nodes[0]!, account, medium, 'before the first byte')
  suite.upstream.answer = (exchange) => {
    exchange.send(created, failedEvent())
    exchange.end()
  }
  const failed = callChat(nodes[0]!, account, { ...medium, stream: true })
  await Array.fromAsync(framesOf(await failed.answer))
  const rows = await endedRows(suite.service, account, 3)
  assert.deepEqual(
    rows.map(({ status, charged_atomic }) => [status, Number(charged_atomic)]),
    [
      ['cancelled', 0],
      ['cancelled', mediumPrice],
      ['failed', 0],
    ],
  )
})
