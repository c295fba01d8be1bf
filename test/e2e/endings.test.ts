import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../support/at-end.ts'
import {
  answers,
  completed,
  created,
  failedEvent,
  incomplete,
  reasoning,
  type ScriptedUpstream,
  text,
  type UpstreamExchange,
} from '../support/scripted-upstream.ts'
import {
  getRow,
  postChat,
  type RequestBody,
  startTestService,
  type TestService,
  withoutTools,
} from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'
import { until } from '../support/until.ts'

// One test per row of the table in docs/operations/charge.md. Prices of the default model: 1 atomic unit for a token of
// input, 5 for one of output.

let apiKey: string
const suite = serviceSuite({ CHECKPOINT_MS: '50' }, async (service) => {
  ;({ apiKey } = await service.openAccount('25'))
})

const messages = [{ role: 'user', content: 'What is a penny?' }]
/** "What is a penny?" is 5 tokens of o200k; the framing of one message 3, of the reply 3. */
const countedInput = 11

test('done: what the upstream reports', async () => {
  const { row } = await ask(answers(created, text('Hi'), completed()))
  assertCharge(row, 'succeeded', 10 + 5 * 5, 'upstream')
})

test('cut by max_tokens: what the upstream reports', async () => {
  const { row } = await ask(answers(created, text('Hi'), incomplete('max_output_tokens')))
  assertCharge(row, 'succeeded', 35, 'upstream')
  assert.equal(row.finish_reason, 'length')
})

test('stopped by the content filter: what the upstream reports', async () => {
  const { row } = await ask(answers(created, text('Hi'), incomplete('content_filter')))
  assertCharge(row, 'succeeded', 35, 'upstream')
  assert.equal(row.finish_reason, 'content_filter')
})

test('the model refuses: a refusal is output', async () => {
  const { row, body } = await ask(
    answers(
      created,
      { type: 'response.refusal.delta', item_id: 'm', output_index: 0, content_index: 0, delta: 'No.' },
      completed(),
    ),
  )
  assertCharge(row, 'succeeded', 35, 'upstream')
  assert.match(body, /"refusal":"No\."/)
})

test('reasoning is billed once, as output', async () => {
  const usage = {
    input_tokens: 10,
    output_tokens: 20,
    output_tokens_details: { reasoning_tokens: 15 },
    total_tokens: 30,
  }
  const { row } = await ask(answers(created, reasoning('Hm'), text('Hi'), completed(usage)))
  assertCharge(row, 'succeeded', 10 + 5 * 20, 'upstream')
  assert.equal(row.usage?.reasoning_tokens, 15)
})

test('no usage from the upstream: our own count', async () => {
  const { row } = await ask(answers(created, text('one two three'), completed(null)))
  assertCharge(row, 'succeeded', countedInput + 5 * 3, 'counted')
})

test('explicit zeros are an answer', async () => {
  const { row } = await ask(
    answers(created, text('Hi'), completed({ input_tokens: 0, output_tokens: 0, total_tokens: 0 })),
  )
  assertCharge(row, 'succeeded', 0, 'upstream')
})

for (const usage of [
  { input_tokens: -5, output_tokens: 5 },
  { input_tokens: '10', output_tokens: 5 },
  { input_tokens: 10, output_tokens: 1.5 },
  { input_tokens: 10, output_tokens: 9_000 },
  { input_tokens: 500_000, output_tokens: 5 },
  'many',
]) {
  test(`usage that cannot be true (${JSON.stringify(usage)}): our own count`, async () => {
    const { row } = await ask(answers(created, text('one two three'), completed(usage)))
    assertCharge(row, 'succeeded', countedInput + 5 * 3, 'counted')
  })
}

test('readiness reports a model that fails three times in a row, and its recovery', async () => {
  const standing = async () => {
    const ready = await fetch(`${suite.service.origin}/readyz`)
    return ((await ready.json()) as { parts: { model: string } }).parts.model
  }
  for (let failure = 0; failure < 3; failure += 1) await ask(refuses(500), {})
  assert.equal(await standing(), 'failing')
  await ask(answers(created, text('Hi'), completed()), {})
  assert.equal(await standing(), 'working')
})

for (const stream of [false, true]) {
  const form = stream ? 'streamed' : 'buffered'

  test(`the upstream answers 500, ${form}: void`, async () => {
    const { row, answer } = await ask(refuses(500), { stream })
    assertVoid(row, 'failed', 'upstream_error')
    assert.equal(answer.status, 502)
  })

  test(`the upstream answers 429, ${form}: void, and a 503 that may be retried`, async () => {
    const { row, answer } = await ask(refuses(429), { stream })
    assertVoid(row, 'failed', 'overloaded')
    assert.deepEqual([answer.status, answer.headers.get('x-should-retry')], [503, 'true'])
  })

  test(`the upstream rejects the request, ${form}: void, and a 400`, async () => {
    const wrong = {
      message: 'Too long',
      type: 'invalid_request_error',
      code: 'context_length_exceeded',
      param: 'input',
    }
    const { row, answer } = await ask(refuses(400, wrong), { stream })
    assertVoid(row, 'failed', 'context_length_exceeded')
    assert.equal(row.held_atomic, row.quote_atomic)
    assert.equal(answer.status, 400)
  })

  test(`the upstream’s key is wrong, ${form}: void, and the error does not ask the customer to fix it`, async () => {
    const { row, answer } = await ask(refuses(401), { stream })
    assertVoid(row, 'failed', 'upstream_error')
    assert.equal(answer.status, 502)
  })

  test(`the upstream fails before any output, ${form}: void`, async () => {
    const { row, answer } = await ask(answers(created, failedEvent()), { stream })
    assertVoid(row, 'failed', 'upstream_error')
    // A stream's headers are out as soon as the upstream has accepted; the error then comes in the stream.
    assert.ok(stream || answer.status === 502)
  })

  test(`the upstream hangs up before any output, ${form}: void`, async () => {
    const { row } = await ask((exchange) => void exchange.outgoing.destroy(), { stream })
    assertVoid(row, 'failed', 'upstream_error')
  })

  test(`the upstream never answers, ${form}: void, 504`, async (t) => {
    const { row, answer } = await ask(() => {}, { stream }, await startImpatient(t))
    assertVoid(row, 'failed', 'upstream_timeout')
    assert.equal(answer.status, 504)
  })
}

for (const [what, ending] of [
  ['fails', (exchange: UpstreamExchange) => exchange.send(failedEvent())],
  ['hangs up', (exchange: UpstreamExchange) => void exchange.outgoing.destroy()],
  ['ends without an end', (exchange: UpstreamExchange) => exchange.end()],
  ['falls silent', undefined],
] as const) {
  const begin: ScriptedUpstream['answer'] = async (exchange) => {
    exchange.send(created, text('one two'))
    await exchange.read()
    ending?.(exchange)
  }
  const startNode = async (t: TestContext) => (ending === undefined ? startImpatient(t) : suite.service)

  test(`the upstream ${what} after output, streamed: input and what was generated, and an error frame without [DONE]`, async (t) => {
    const { row, body } = await ask(begin, { stream: true }, await startNode(t))
    assertCharge(row, 'failed', countedInput + 5 * 2, 'counted')
    assert.match(body, /data: \{"error":\{/)
    assert.doesNotMatch(body, /\[DONE\]/)
  })

  test(`the upstream ${what} after output, buffered: nothing was delivered, void`, async (t) => {
    const { row, answer } = await ask(begin, {}, await startNode(t))
    assertVoid(row, 'failed', undefined)
    assert.ok(answer.status >= 500)
    assert.equal(answer.headers.get('x-router-charged-usdc'), '0')
  })
}

for (const stream of [false, true]) {
  const form = stream ? 'streamed' : 'buffered'

  test(`the client leaves before any output, ${form}: nothing, and the upstream is stopped`, async () => {
    const row = await leave((exchange) => exchange.send(created), stream)
    assertVoid(row, 'cancelled', undefined)
  })

  test(`the client leaves midway, ${form}: input and what was generated, and the upstream is stopped`, async () => {
    const row = await leave((exchange) => exchange.send(created, text('one two three')), stream)
    assertCharge(row, 'cancelled', countedInput + 5 * 3, 'counted')
  })
}

for (const [max_tokens, stream] of [
  [20, true],
  [20, false],
  [3, true],
  [3, false],
] as const) {
  const form = stream ? 'streamed' : 'buffered'

  test(`an upstream that does not stop at max_tokens (${max_tokens}), ${form}: cut, billed at the asked count, and stopped`, async () => {
    const { row, body } = await ask(
      (exchange) => {
        exchange.send(created)
        const pour = setInterval(() => exchange.send(text(`${'word '.repeat(400)}`)), 1)
        void exchange.hungUp.then(() => clearInterval(pour))
      },
      { max_tokens, stream },
    )
    assertCharge(row, 'succeeded', countedInput + 5 * max_tokens, 'counted')
    assert.equal(row.finish_reason, 'length')
    assert.match(body, /"finish_reason":"length"/)
    await suite.upstream.exchanges.at(-1)!.hungUp
  })
}

test('fewer tokens than the upstream’s minimum: cut and billed at the asked count', async () => {
  const usage = { input_tokens: 10, output_tokens: 16, total_tokens: 26 }
  const { row, body } = await ask(answers(created, text('one two three four five six'), completed(usage)), {
    max_tokens: 3,
  })
  assertCharge(row, 'succeeded', 10 + 5 * 3, 'upstream')
  assert.match(body, /"content":"one two three"/)
  assert.equal(row.finish_reason, 'length')
  assert.equal(suite.upstream.exchanges.at(-1)?.body.max_output_tokens, 16)
})

/** A node that waits for a silent upstream only briefly: the upstream of the other tests must not exceed that on a busy machine. */
async function startImpatient(t: TestContext): Promise<TestService> {
  const service = await startTestService({
    upstreamUrl: suite.upstream.url,
    besideOf: suite.service,
    environment: { UPSTREAM_IDLE_MS: '1500', UPSTREAM_FIRST_BYTE_MS: '1500' },
  })
  atEnd(t, () => service.stop())
  return service
}

async function ask(
  answer: ScriptedUpstream['answer'],
  body: object = {},
  service: TestService = suite.service,
): Promise<{ answer: Response; body: string; row: RequestBody }> {
  suite.upstream.answer = answer
  const response = await postChat(service, apiKey, { messages, ...withoutTools, ...body })
  return { answer: response, body: await response.text(), row: await getRow(suite.service, apiKey, response) }
}

/** Sends a request, lets the upstream begin, and hangs up. The row is read once the ledger has its end. */
async function leave(begin: (exchange: UpstreamExchange) => void, stream: boolean): Promise<RequestBody> {
  const begun = Promise.withResolvers<UpstreamExchange>()
  suite.upstream.answer = (exchange) => {
    begin(exchange)
    begun.resolve(exchange)
  }
  const controller = new AbortController()
  const response = postChat(suite.service, apiKey, { messages, stream, ...withoutTools }, { signal: controller.signal })
  response.catch(() => {})
  const exchange = await begun.promise
  // What the upstream wrote has arrived once the service has written it on, or, buffered, a moment later.
  if (stream) await (await response).body!.getReader().read()
  await exchange.read()
  controller.abort()
  await exchange.hungUp
  return lastEnded()
}

async function lastEnded(): Promise<RequestBody> {
  const { id } = await until(async () => {
    const [last] = await suite.service.database.query<{ id: string; status: string }>(
      'select id, status from request_log order by id desc limit 1',
    )
    return last!.status !== 'held' && last!
  })
  return getRow(suite.service, apiKey, `req_${id.replaceAll('-', '')}`)
}

const broken = { message: 'secret details', type: 'server_error', code: null, param: null }

function refuses(status: number, error: object = broken): ScriptedUpstream['answer'] {
  return ({ outgoing }) => {
    outgoing.writeHead(status, { 'content-type': 'application/json' })
    outgoing.end(JSON.stringify({ error }))
  }
}

function assertCharge(row: RequestBody, status: string, charged: number, source: string): void {
  assert.deepEqual([row.status, Number(row.charged_atomic), row.usage?.source], [status, charged, source])
  assert.equal(Number(row.refunded_atomic), Number(row.held_atomic) - charged)
}

function assertVoid(row: RequestBody, status: string, code: string | undefined): void {
  assert.deepEqual([row.status, row.charged_atomic, row.usage], [status, '0', null])
  if (code !== undefined) assert.equal(row.error?.code, code)
  assert.equal(row.settlement.state, 'none')
}
