import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import OpenAI from 'openai'
import { createKey } from '../../src/identity/api-keys.ts'
import { assertBooksClosed } from '../support/audit.ts'
import {
  completed,
  created,
  type ScriptedUpstream,
  startScriptedUpstream,
  text,
  type UpstreamExchange,
} from '../support/scripted-upstream.ts'
import { getRow, postChat, startTestService, type TestAccount, type TestService } from '../support/service.ts'
import { until } from '../support/until.ts'

let service: TestService
let other: TestService
let upstream: ScriptedUpstream
before(async () => {
  upstream = await startScriptedUpstream()
  const environment = { STREAM_KEEPALIVE_MS: '50', KEEPALIVE_AFTER_MS: '2000' }
  service = await startTestService({ upstreamUrl: upstream.url, environment })
  other = await startTestService({ upstreamUrl: upstream.url, besideOf: service, environment })
})
after(async () => {
  try {
    await assertBooksClosed(service.database)
  } finally {
    await other.stop()
    await service.stop()
    await upstream.close()
  }
})

const messages = [{ role: 'user', content: 'What is a penny?' }]
const question = { messages }
const streamed = { ...question, stream: true }

test('the same Idempotency-Key and body get the stored answer and pay once, on any node, buffered and streamed', async () => {
  const account = await service.openAccount('25')
  upstream.answer = answering('One')
  const first = await ask(service, account, question, { 'idempotency-key': 'a' })
  upstream.answer = answering('Two')
  for (const node of [service, other]) {
    const again = await ask(node, account, question, { 'idempotency-key': 'a' })
    assert.equal(again.body, first.body)
    assert.equal(again.answer.headers.get('idempotent-replayed'), 'true')
    assert.equal(again.answer.headers.get('x-router-request-id'), first.answer.headers.get('x-router-request-id'))
    assert.equal(again.answer.headers.get('x-router-charged-usdc'), first.answer.headers.get('x-router-charged-usdc'))
  }
  const withUsage = { ...streamed, stream_options: { include_usage: true } }
  const stream = await ask(service, account, withUsage, { 'idempotency-key': 's' })
  const replayed = await ask(other, account, withUsage, { 'idempotency-key': 's' })
  assert.match(replayed.body, /"content":"Two"/)
  assert.match(replayed.body, /\[DONE\]/)
  assert.equal(usageOf(replayed.body), usageOf(stream.body))
  assert.deepEqual(await chargesOf(account), ['35', '35'])
})

test('the same key with another body is 422 and holds nothing', async () => {
  const account = await service.openAccount('25')
  upstream.answer = answering('One')
  await ask(service, account, question, { 'idempotency-key': 'b' })
  const { answer, body } = await ask(service, account, { ...question, max_tokens: 99 }, { 'idempotency-key': 'b' })
  assert.deepEqual([answer.status, JSON.parse(body).error.code], [422, 'idempotency_mismatch'])
  assert.equal(answer.headers.get('x-router-held-usdc'), null)
})

test('another account’s equal key is another request', async () => {
  upstream.answer = answering('One')
  for (const account of [await service.openAccount('25'), await service.openAccount('25')]) {
    const { answer } = await ask(service, account, question, { 'idempotency-key': 'c' })
    assert.equal(answer.headers.get('idempotent-replayed'), null)
  }
})

test('another API key of the same account cannot read the answer by its Idempotency-Key', async () => {
  const account = await service.openAccount('25')
  const { secret: apiKey } = await createKey(service.database, { ...account, accountId: account.id, name: 'second' })
  upstream.answer = answering('One')
  await ask(service, account, question, idempotent('shared'))
  upstream.answer = answering('Two')
  const { answer, body } = await ask(service, { ...account, apiKey }, question, idempotent('shared'))
  assert.equal(answer.headers.get('idempotent-replayed'), null)
  assert.match(body, /"content":"Two"/)
  assert.deepEqual(await chargesOf(account), ['35', '35'])
})

test('fifty equal requests with one key at once are one request with fifty equal answers', async () => {
  const account = await service.openAccount('25')
  const go = Promise.withResolvers<void>()
  const before = upstream.exchanges.length
  upstream.answer = async (exchange) => {
    await go.promise
    answering('One')(exchange)
  }
  const asked = Array.from({ length: 50 }, (_, index) =>
    ask(index % 2 ? service : other, account, question, { 'idempotency-key': 'd' }),
  )
  await until(() => upstream.exchanges.length > before)
  go.resolve()
  // On a slow machine those who wait are kept alive by white space, each by as much as it waited.
  const bodies = new Set((await Promise.all(asked)).map(({ body }) => body.trim()))
  assert.equal(bodies.size, 1)
  assert.equal(upstream.exchanges.length, before + 1)
  assert.deepEqual(await chargesOf(account), ['35'])
})

test('a key whose attempt was refused or failed is free for the next', async () => {
  const poor = await service.openAccount('0')
  assert.equal((await ask(service, poor, question, { 'idempotency-key': 'e' })).answer.status, 402)
  assert.equal((await ask(service, poor, question, { 'idempotency-key': 'e' })).answer.status, 402)
  const account = await service.openAccount('25')
  upstream.answer = ({ outgoing }) => void outgoing.writeHead(500).end('{}')
  assert.equal((await ask(service, account, question, { 'idempotency-key': 'e' })).answer.status, 502)
  upstream.answer = answering('One')
  assert.equal((await ask(service, account, question, { 'idempotency-key': 'e' })).answer.status, 200)
})

test('a retry that the SDK marks gets the answer of the attempt before, and pays nothing', async () => {
  const account = await service.openAccount('25')
  upstream.answer = answering('One')
  const first = await ask(service, account, question, { 'x-stainless-retry-count': '0' })
  upstream.answer = answering('Two')
  const retry = await ask(service, account, question, { 'x-stainless-retry-count': '1' })
  assert.equal(retry.body, first.body)
  assert.deepEqual(await chargesOf(account), ['35'])
})

test('equal requests that are not marked as retries are two requests', async () => {
  const account = await service.openAccount('25')
  upstream.answer = answering('One')
  await ask(service, account, question, { 'x-stainless-retry-count': '0' })
  await ask(service, account, question, { 'x-stainless-retry-count': '0' })
  await ask(service, account, question)
  assert.deepEqual(await chargesOf(account), ['35', '35', '35'])
})

test('a retry that delivers gives back what the cancelled attempt before it was charged, on any node', async () => {
  for (const node of [service, other]) {
    const account = await service.openAccount('25')
    const cancelled = await cancelMidway(account, { 'x-stainless-retry-count': '0' })
    assert.notEqual((await getRow(service, account.apiKey, cancelled)).charged_atomic, '0')
    upstream.answer = answering('Whole')
    const retry = await ask(node, account, streamed, { 'x-stainless-retry-count': '1' })
    assert.match(retry.body, /Whole/)
    assert.equal((await getRow(service, account.apiKey, cancelled)).charged_atomic, '0')
    assert.deepEqual(await chargesOf(account), ['0', '35'])
  }
})

test('a retry of an attempt that ran for minutes before it was given up pays once', async () => {
  const account = await service.openAccount('25')
  await cancelMidway(account, { 'x-stainless-retry-count': '0' })
  // Within its hour, by which its use is counted.
  await service.database.query(
    `update requests set created_at = greatest(date_trunc('hour', created_at), created_at - interval '5 minutes')
      where account_id = $1`,
    [account.id],
  )
  upstream.answer = answering('Whole')
  await ask(service, account, streamed, { 'x-stainless-retry-count': '1' })
  assert.deepEqual(await chargesOf(account), ['0', '35'])
})

for (const marks of [
  [{ 'x-stainless-retry-count': '0' }, { 'x-stainless-retry-count': '1' }],
  [idempotent('f'), idempotent('f')],
] as const) {
  test(`nobody reads a stream for nothing by repeating it and hanging up, marked by ${Object.keys(marks[0])}`, async () => {
    const account = await service.openAccount('25')
    const read = await cancelMidway(account, marks[0])
    const { charged_atomic: charged } = await getRow(service, account.apiKey, read)
    const before = upstream.exchanges.length
    upstream.answer = () => {}
    const controller = new AbortController()
    const retry = postChat(service, account.apiKey, streamed, { headers: marks[1], signal: controller.signal })
    retry.catch(() => {})
    await until(() => upstream.exchanges.length > before)
    controller.abort()
    await until(async () => (await chargesOf(account)).length === 2)
    await until(async () => (await heldBy(account)) === 0)
    // Who comes before the attempt has let go of its key joins it, and is told that it came to nothing.
    await until(async () => (await keysInUse(account)) === 0)
    assert.deepEqual(await chargesOf(account), [charged, '0'])
    upstream.answer = answering('Whole')
    const last = 'idempotency-key' in marks[1] ? marks[1] : { 'x-stainless-retry-count': '2' }
    assert.match((await ask(service, account, streamed, last)).body, /Whole/)
    assert.deepEqual(await chargesOf(account), ['0', '0', '35'])
  })
}

test('a retry that is refused gives nothing back and leaves the key to the attempt it would have stood for', async () => {
  const account = await service.openAccount('25')
  const read = await cancelMidway(account, idempotent('g'))
  const { charged_atomic: charged } = await getRow(service, account.apiKey, read)
  await limitKey(account, '1')
  assert.equal((await ask(service, account, streamed, idempotent('g'))).answer.status, 402)
  assert.deepEqual(await chargesOf(account), [charged])
  await limitKey(account, null)
  upstream.answer = answering('Whole')
  assert.match((await ask(service, account, streamed, idempotent('g'))).body, /Whole/)
  assert.deepEqual(await chargesOf(account), ['0', '35'])
})

test('a retry gives back every attempt that it is a retry of, and no answered request before those', async () => {
  const account = await service.openAccount('25')
  upstream.answer = answering('One')
  await ask(service, account, streamed, { 'x-stainless-retry-count': '0' })
  for (const count of ['0', '1']) await cancelMidway(account, { 'x-stainless-retry-count': count })
  upstream.answer = answering('Whole')
  await ask(service, account, streamed, { 'x-stainless-retry-count': '9' })
  assert.deepEqual(await chargesOf(account), ['35', '0', '0', '35'])
})

test('a retry that claims to be the hundredth gives five attempts back, and no more', async () => {
  const account = await service.openAccount('25')
  for (let count = 0; count < 7; count += 1) await cancelMidway(account, retry(count))
  upstream.answer = answering('Whole')
  await ask(service, account, streamed, retry(99))
  const charges = await chargesOf(account)
  assert.deepEqual(
    charges.map((charged) => charged !== '0'),
    [true, true, false, false, false, false, false, true],
  )
})

test('who repeats one request for ever pays for it again', async () => {
  const account = await service.openAccount('25')
  upstream.answer = answering('One')
  for (let asked = 0; asked < 4; asked += 1)
    for (const node of [service, other]) await ask(node, account, question, { 'x-stainless-retry-count': '1' })
  assert.deepEqual(await chargesOf(account), ['0', '0', '0', '0', '0', '35', '35', '35'])
})

test('a retry on another node than the answered attempt never pays twice', async () => {
  const account = await service.openAccount('25')
  upstream.answer = answering('One')
  await ask(service, account, question, { 'x-stainless-retry-count': '0' })
  await ask(other, account, question, { 'x-stainless-retry-count': '1' })
  assert.deepEqual(await chargesOf(account), ['0', '35'])
})

test('a retry joins the attempt under way, which goes on when its first client leaves', async () => {
  const account = await service.openAccount('25')
  const begun = Promise.withResolvers<UpstreamExchange>()
  upstream.answer = (exchange) => {
    exchange.send(created, text('One'))
    begun.resolve(exchange)
  }
  const controller = new AbortController()
  const first = postChat(service, account.apiKey, question, {
    headers: { 'x-stainless-retry-count': '0' },
    signal: controller.signal,
  })
  first.catch(() => {})
  const exchange = await begun.promise
  const retry = ask(service, account, question, { 'x-stainless-retry-count': '1' })
  // The retry has joined once the ledger was asked for the attempt before; then its first client goes.
  await new Promise((resolve) => setTimeout(resolve, 1_000))
  controller.abort()
  await new Promise((resolve) => setTimeout(resolve, 200))
  exchange.send(text(' whole'), completed())
  exchange.end()
  const { body } = await retry
  assert.equal(JSON.parse(body).choices[0].message.content, 'One whole')
  assert.deepEqual(await chargesOf(account), ['35'])
})

/** So much that no second one may be in flight beside it. */
const dear = { ...question, model: 'gpt-6-astra', max_tokens: 30_000 }

test('the retry of a request that was told to come back is a request of its own, whatever equal ones run or ran', async () => {
  const account = await service.openAccount('25')
  const begun = nextExchange()
  const first = ask(service, account, dear, retry(0))
  const exchange = await begun
  for (const count of [0, 1]) assert.equal((await ask(service, account, dear, retry(count))).answer.status, 429)
  answering('One')(exchange)
  assert.match((await first).body, /"content":"One"/)
  upstream.answer = answering('Two')
  const { answer, body } = await ask(service, account, dear, retry(2))
  assert.match(body, /"content":"Two"/)
  assert.equal(answer.headers.get('idempotent-replayed'), null)
  assert.deepEqual(await chargesOf(account), ['175', '175'])
})

test('each of many equal requests that were refused at once has an answer of its own in the end', async () => {
  const account = await service.openAccount('25')
  let answers = 0
  upstream.answer = (exchange) => answering(`answer ${(answers += 1)}`)(exchange)
  const client = new OpenAI({ baseURL: service.baseUrl, apiKey: account.apiKey, maxRetries: 9 })
  const create = () =>
    client.chat.completions.create({
      model: 'gpt-5.6-terra',
      max_tokens: 30_000,
      messages: [{ role: 'user', content: 'Throw a die.' }],
    })
  const got = await Promise.all(Array.from({ length: 12 }, create))
  assert.equal(new Set(got.map(({ choices }) => choices[0]?.message.content)).size, got.length)
  assert.deepEqual(
    await chargesOf(account),
    got.map(() => '35'),
  )
})

test('the retry of a request that failed joins no equal one that runs', async () => {
  const account = await service.openAccount('25')
  upstream.answer = ({ outgoing }) => void outgoing.writeHead(500).end('{}')
  assert.equal((await ask(service, account, question, retry(0))).answer.status, 502)
  const begun = nextExchange()
  const other = ask(service, account, question, retry(0))
  const exchange = await begun
  upstream.answer = answering('Two')
  assert.match((await ask(service, account, question, retry(1))).body, /"content":"Two"/)
  answering('One')(exchange)
  assert.match((await other).body, /"content":"One"/)
  assert.deepEqual(await chargesOf(account), ['0', '35', '35'])
})

test('a retry that was told to come back leaves what it stood for to the next', async () => {
  const account = await service.openAccount('25')
  await cancelMidway(account, retry(0), { ...dear, stream: true })
  const begun = nextExchange()
  const other = ask(service, account, { ...dear, max_tokens: 30_001 }, retry(0))
  const exchange = await begun
  assert.equal((await ask(service, account, { ...dear, stream: true }, retry(1))).answer.status, 429)
  answering('Other')(exchange)
  await other
  upstream.answer = answering('Whole')
  assert.match((await ask(service, account, { ...dear, stream: true }, retry(2))).body, /Whole/)
  assert.deepEqual(await chargesOf(account), ['0', '175', '175'])
})

for (const stream of [false, true]) {
  for (const where of ['the same node', 'another node'] as const) {
    test(`a ${stream ? 'streamed' : 'buffered'} retry that waits on ${where} is kept alive like the attempt it joined, under its id`, async () => {
      const account = await service.openAccount('25')
      const begun = Promise.withResolvers<UpstreamExchange>()
      upstream.answer = (exchange) => begun.resolve(exchange)
      const headers = { 'idempotency-key': 'joined' }
      const first = postChat(service, account.apiKey, { ...question, stream }, { headers })
      const exchange = await begun.promise
      const node = where === 'the same node' ? service : other
      const retry = await postChat(node, account.apiKey, { ...question, stream }, { headers })
      const pieces = retry.body!.pipeThrough(new TextDecoderStream())[Symbol.asyncIterator]()
      const { value: firstPiece } = await pieces.next()
      assert.match(firstPiece!, stream ? /"role":"assistant"/ : /^ +$/)
      assert.match((await pieces.next()).value!, stream ? /^: / : /^ +$/)
      exchange.send(created, text('One'), completed())
      exchange.end()
      const answer = await first
      await answer.text()
      let rest = ''
      for await (const piece of pieces) rest += piece
      assert.match(rest, stream ? /"content":"One".*\[DONE\]/s : /"content":"One"/)
      assert.equal(retry.headers.get('x-router-request-id'), answer.headers.get('x-router-request-id'))
      assert.equal(retry.headers.get('x-router-held-usdc'), answer.headers.get('x-router-held-usdc'))
      assert.deepEqual(await chargesOf(account), ['35'])
    })
  }
}

test('a retry that was kept alive for an attempt that came to nothing is told so, and nothing is charged', async () => {
  const account = await service.openAccount('25')
  const begun = Promise.withResolvers<UpstreamExchange>()
  upstream.answer = (exchange) => begun.resolve(exchange)
  const headers = { 'idempotency-key': 'lost' }
  const first = ask(service, account, streamed, headers)
  const exchange = await begun.promise
  const retry = await postChat(service, account.apiKey, streamed, { headers })
  exchange.outgoing.writeHead(500).end('{}')
  await first
  const body = await retry.text()
  assert.match(body, /"error":\{[^\n]*"code":"overloaded"/)
  assert.doesNotMatch(body, /\[DONE\]/)
  assert.deepEqual(await chargesOf(account), ['0'])
  upstream.answer = answering('Whole')
  assert.match((await ask(service, account, streamed, headers)).body, /Whole/)
})

async function ask(node: TestService, account: TestAccount, body: object, headers: Record<string, string> = {}) {
  const answer = await postChat(node, account.apiKey, body, { headers })
  return { answer, body: await answer.text() }
}

/** Begins a stream, takes a little of it and hangs up; returns its id once the ledger has its end. */
async function cancelMidway(
  account: TestAccount,
  headers: Record<string, string>,
  body: object = streamed,
): Promise<string> {
  upstream.answer = (exchange) => exchange.send(created, text('one two three'))
  const controller = new AbortController()
  const answer = await postChat(service, account.apiKey, body, { headers, signal: controller.signal })
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader()
  for (let seen = ''; !seen.includes('three'); ) seen += (await reader.read()).value
  controller.abort()
  const id = answer.headers.get('x-router-request-id')!
  await until(async () => (await getRow(service, account.apiKey, id)).status === 'cancelled')
  return id
}

/** The next request that reaches the upstream, which does not answer it by itself. */
function nextExchange(): Promise<UpstreamExchange> {
  return new Promise((resolve) => {
    upstream.answer = resolve
  })
}

function retry(count: number): Record<string, string> {
  return { 'x-stainless-retry-count': String(count) }
}

function answering(content: string): (exchange: UpstreamExchange) => void {
  return (exchange) => {
    exchange.send(created, text(content), completed())
    exchange.end()
  }
}

async function chargesOf(account: TestAccount): Promise<string[]> {
  const rows = await service.database.query<{ charged: bigint }>(
    "select charged from requests where account_id = $1 and status <> 'refused' order by id",
    [account.id],
  )
  return rows.map(({ charged }) => charged.toString())
}

async function heldBy(account: TestAccount): Promise<number> {
  const [row] = await service.database.query<{ held: bigint }>('select held from accounts where id = $1', [account.id])
  return Number(row!.held)
}

async function keysInUse(account: TestAccount): Promise<number> {
  return (await service.database.query('select 1 from replays where account_id = $1 and answer is null', [account.id]))
    .length
}

async function limitKey(account: TestAccount, limit: string | null): Promise<void> {
  await service.database.query('update api_keys set limit_amount = $2 where account_id = $1', [account.id, limit])
}

function idempotent(key: string): Record<string, string> {
  return { 'idempotency-key': key }
}

function usageOf(stream: string): string | undefined {
  return /"usage":(\{.*\})\}\n/.exec(stream)?.[1]
}
