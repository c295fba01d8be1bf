import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { after, before, test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import OpenAI from 'openai'
import { assertBooksClosed } from '../support/audit.ts'
import {
  completed,
  created,
  failedEvent,
  type ScriptedUpstream,
  startScriptedUpstream,
  text,
  type UpstreamExchange,
} from '../support/scripted-upstream.ts'
import {
  getRow,
  postChat,
  startTestService,
  type TestAccount,
  type TestService,
  withoutTools,
} from '../support/service.ts'
import { until } from '../support/until.ts'

let service: TestService
let other: TestService
/** Attempts end as soon as their client leaves: as if no retry had come within the grace. */
let hasty: TestService
const noGrace = { beforeOutputMs: 0, afterOutputMs: 0 }
/** Outlasts any test, so that a slow machine loses no attempt while its retry is on the way. */
const longGrace = { beforeOutputMs: 600_000, afterOutputMs: 600_000 }
let upstream: ScriptedUpstream
before(async () => {
  upstream = await startScriptedUpstream()
  const environment = { STREAM_KEEPALIVE_MS: '50', KEEPALIVE_AFTER_MS: '2000', CHECKPOINT_MS: '50' }
  service = await startTestService({ upstreamUrl: upstream.url, environment, retryGrace: longGrace })
  other = await startTestService({ upstreamUrl: upstream.url, besideOf: service, environment, retryGrace: longGrace })
  hasty = await startTestService({ upstreamUrl: upstream.url, besideOf: service, environment, retryGrace: noGrace })
})
after(async () => {
  try {
    await assertBooksClosed(service.database)
  } finally {
    await hasty.stop()
    await other.stop()
    await service.stop()
    await upstream.close()
  }
})

const messages = [{ role: 'user', content: 'What is a penny?' }]
const question = { messages, ...withoutTools }
const streamed = { ...question, stream: true }
/** As our tokenizer counts it, with the framing. */
const countedInput = 11

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

test('an Idempotency-Key that looks like our name for the retries of a body has an answer of its own', async () => {
  const account = await service.openAccount('25')
  upstream.answer = answering('One')
  await ask(service, account, question, retry(0))
  await ask(service, account, question, retry(1))
  upstream.answer = answering('Two')
  const sha = createHash('sha256').update(JSON.stringify(question)).digest('hex')
  const { answer, body } = await ask(service, account, question, idempotent(`body ${sha}`))
  assert.equal(answer.headers.get('idempotent-replayed'), null)
  assert.match(body, /"content":"Two"/)
})

test('of thirty equal requests with one key, ten on each node join the first, and the others get a retryable error', async () => {
  const account = await service.openAccount('25')
  const begun = nextExchange()
  const first = ask(service, account, question, idempotent('d'))
  const exchange = await begun
  const joined = Array.from({ length: 24 }, (_, index) =>
    ask(index % 2 ? service : other, account, question, idempotent('d')),
  )
  const refused = []
  for await (const { answer } of settledFirst(joined, 4)) refused.push(answer)
  for (const answer of refused) {
    assert.deepEqual([answer.status, answer.headers.get('retry-after')], [503, '5'])
    assert.equal(answer.headers.get('x-should-retry'), 'true')
  }
  const before = upstream.exchanges.length
  answering('One')(exchange)
  const { body } = await first
  const answers = await Promise.all(joined)
  // While they wait, connections are kept alive by white space.
  const whole = answers.filter(({ answer }) => answer.status === 200).map((answered) => answered.body.trim())
  assert.deepEqual([whole.length, new Set([...whole, body]).size], [20, 1])
  assert.equal(upstream.exchanges.length, before)
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

test('a retry that the SDK marks gets the answer of the attempt before, on any node, and pays nothing', async () => {
  const account = await service.openAccount('25')
  upstream.answer = answering('One')
  const first = await ask(service, account, question, retry(0))
  upstream.answer = answering('Two')
  for (const [index, node] of [service, other].entries())
    assert.equal((await ask(node, account, question, retry(index + 1))).body.trim(), first.body)
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

for (const marks of [
  [retry(0), retry(1)],
  [idempotent('cut'), idempotent('cut')],
] as const) {
  const mark = Object.keys(marks[0])

  test(`a stream that is cut goes on, and its retry gets the whole answer from its first token for one charge, marked by ${mark}`, async () => {
    for (const node of [service, other]) {
      const account = await service.openAccount('25')
      const { exchange, id } = await cutStream(service, account, marks[0])
      // Its headers come when it has joined.
      const answer = await postChat(node, account.apiKey, streamed, { headers: marks[1] })
      assert.equal((await getRow(service, account.apiKey, id)).status, 'held')
      exchange.send(text(' four'), completed())
      exchange.end()
      assert.match(await answer.text(), /one two three four.*\[DONE\]/s)
      assert.equal(answer.headers.get('x-router-request-id'), id)
      assert.equal(answer.headers.get('idempotent-replayed'), 'true')
      assert.deepEqual(await chargesOf(account), ['35'])
    }
  })

  test(`a stream that is cut and not retried costs what was generated when its client left, marked by ${mark}`, async () => {
    const account = await service.openAccount('25')
    const plain = await cutStream(hasty, account, {})
    const left = await cutStream(hasty, account, marks[0])
    for (const { id } of [plain, left]) await ended(account, id)
    const [price] = await chargesOf(account)
    assert.deepEqual(await chargesOf(account), [price, price])
    assert.equal((await getRow(service, account.apiKey, left.id)).status, 'cancelled')
  })

  test(`no streamed output is refunded, however it is retried, marked by ${mark}`, async () => {
    const account = await service.openAccount('25')
    const { id } = await cutStream(hasty, account, marks[0])
    await ended(account, id)
    const [price] = await chargesOf(account)
    upstream.answer = answering('Whole')
    assert.match((await ask(hasty, account, streamed, marks[1])).body, /Whole/)
    assert.deepEqual(await chargesOf(account), [price, '35'])
  })

  test(`a buffered request that timed out is refunded when its retry delivers, at most what the retry costs, marked by ${mark}`, async () => {
    for (const generated of ['one two three', 'one two three four five six seven eight nine ten']) {
      const account = await service.openAccount('25')
      const before = Number(await timeOut(account, marks[0], generated))
      assert.ok(before > 0)
      upstream.answer = answering('Whole')
      assert.match((await ask(hasty, account, question, marks[1])).body, /Whole/)
      assert.deepEqual(await chargesOf(account), [String(Math.max(0, before - 35)), '35'])
      await deleteKeys(account)
    }
  })

  test(`a retry that is itself given up refunds nothing, and the next one that delivers does, marked by ${mark}`, async () => {
    const account = await service.openAccount('25')
    const charged = await timeOut(account, marks[0], 'one two three')
    const before = upstream.exchanges.length
    upstream.answer = () => {}
    const controller = new AbortController()
    const given = postChat(hasty, account.apiKey, question, { headers: marks[1], signal: controller.signal })
    given.catch(() => {})
    await until(() => upstream.exchanges.length > before)
    controller.abort()
    await until(async () => (await chargesOf(account)).length === 2 && (await heldBy(account)) === 0)
    assert.deepEqual(await chargesOf(account), [charged, '0'])
    if (mark.includes('idempotency-key')) {
      upstream.answer = answering('Whole')
      assert.match((await ask(hasty, account, question, marks[1])).body, /Whole/)
      assert.deepEqual(await chargesOf(account), ['0', '0', '35'])
    }
    await deleteKeys(account)
  })
}

test('an account gets five buffered attempts of an hour refunded, whatever their bodies and keys', async () => {
  const account = await service.openAccount('25')
  for (let asked = 0; asked < 7; asked += 1) {
    const body = { ...question, max_tokens: 50 + asked }
    const marks = asked % 2 ? [retry(0), retry(1)] : [idempotent(`bound ${asked}`), idempotent(`bound ${asked}`)]
    await timeOut(account, marks[0]!, 'one two', body)
    upstream.answer = answering('Whole')
    await ask(hasty, account, body, marks[1])
  }
  const attempts = (await chargesOf(account)).filter((_, index) => index % 2 === 0)
  assert.deepEqual(
    attempts.map((charged) => charged === '0'),
    [true, true, true, true, true, false, false],
  )
})

test('a retry that is refused leaves the refund to the next retry', async () => {
  const account = await service.openAccount('25')
  const charged = await timeOut(account, idempotent('g'), 'one two three')
  await limitKey(account, '1')
  assert.equal((await ask(hasty, account, question, idempotent('g'))).answer.status, 402)
  assert.deepEqual(await chargesOf(account), [charged])
  await limitKey(account, null)
  upstream.answer = answering('Whole')
  assert.match((await ask(hasty, account, question, idempotent('g'))).body, /Whole/)
  assert.deepEqual(await chargesOf(account), ['0', '35'])
})

test('two concurrent retries of an attempt without an answer are one request', async () => {
  for (const marks of [
    [retry(0), retry(1)],
    [idempotent('two'), idempotent('two')],
  ] as const) {
    const account = await service.openAccount('25')
    await timeOut(account, marks[0], 'one two three')
    const before = upstream.exchanges.length
    const begun = nextExchange()
    const retries = [ask(hasty, account, question, marks[1]), ask(hasty, account, question, marks[1])]
    answering('Whole')(await begun)
    const bodies = (await Promise.all(retries)).map(({ body }) => body.trim())
    assert.equal(new Set(bodies).size, 1)
    assert.equal(upstream.exchanges.length, before + 1)
    assert.deepEqual(await chargesOf(account), ['0', '35'])
    await deleteKeys(account)
  }
})

test('retries that wait keep nothing of their bodies', async () => {
  const account = await service.openAccount('25')
  const large = { ...question, metadata: Array.from({ length: 70_000 }, () => ({})) }
  const begun = nextExchange()
  const first = ask(service, account, large, idempotent('large'))
  const exchange = await begun
  const before = memoryInUse()
  const body = JSON.stringify(large)
  const retries = Array.from({ length: 8 }, () =>
    postChat(service, account.apiKey, body, { headers: idempotent('large') }),
  )
  // Their headers come when they have waited for KEEPALIVE_AFTER_MS.
  const waiting = await Promise.all(retries)
  const grown = memoryInUse() - before
  answering('One')(exchange)
  await first
  for (const answer of waiting) assert.match(await answer.text(), /"content":"One"/)
  // Parsed, each body takes at least 2 MB.
  assert.ok(grown < 12_000_000, `${grown} bytes more in use`)
  assert.deepEqual(await chargesOf(account), ['35'])
})

test('deleted answers are given to no retry: the request is served again and charged', async () => {
  const account = await service.openAccount('25')
  upstream.answer = answering('One')
  await ask(service, account, question, idempotent('deleted'))
  const response = await fetch(`${service.origin}/api/replays`, {
    method: 'DELETE',
    headers: { authorization: `Bearer ${account.apiKey}` },
  })
  assert.deepEqual([response.status, await response.json()], [200, { object: 'deletion', deleted: 1 }])
  upstream.answer = answering('Two')
  assert.match((await ask(service, account, question, idempotent('deleted'))).body, /Two/)
  assert.deepEqual(await chargesOf(account), ['35', '35'])
})

for (const [first, again] of [
  [idempotent('often'), idempotent('often')],
  [retry(0), retry(1)],
] as const)
  test(`an answer is replayed twenty times, then once a minute, marked by ${Object.keys(first)}`, async () => {
    const account = await service.openAccount('25')
    upstream.answer = answering('One')
    await ask(service, account, question, first)
    const statuses: number[] = []
    for (let time = 0; time < 22; time += 1) {
      const { answer, body } = await ask(service, account, question, again)
      statuses.push(answer.status)
      if (answer.status === 429) assert.match(body, /This answer was replayed 20 times; after that, once a minute/)
      if (answer.status === 429) assert.equal(answer.headers.get('retry-after'), '60')
    }
    assert.deepEqual(statuses, [...Array(20).fill(200), 429, 429])
    assert.deepEqual(await chargesOf(account), ['35'])
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
  // Its headers come when it has joined.
  const retry = await postChat(service, account.apiKey, question, { headers: { 'x-stainless-retry-count': '1' } })
  controller.abort()
  exchange.send(text(' whole'), completed())
  exchange.end()
  assert.equal(JSON.parse(await retry.text()).choices[0].message.content, 'One whole')
  assert.deepEqual(await chargesOf(account), ['35'])
})

for (const where of ['the same node', 'another node'] as const) {
  test(`a stream that fails after its client left costs what that client received, although a retry on ${where} waits`, async () => {
    const node = where === 'the same node' ? service : other
    const account = await service.openAccount('25')
    const begun = nextExchange()
    const controller = new AbortController()
    const first = postChat(service, account.apiKey, streamed, {
      headers: idempotent('none'),
      signal: controller.signal,
    })
    first.catch(() => {})
    const unread = await begun
    unread.send(created)
    controller.abort()
    const read = await cutStream(service, account, idempotent('some'))
    for (const [exchange, key] of [
      [unread, 'none'],
      [read.exchange, 'some'],
    ] as const) {
      // Its headers come when it has joined.
      const retry = await postChat(node, account.apiKey, streamed, { headers: idempotent(key) })
      exchange.send(text(' four five six'), failedEvent())
      exchange.end()
      assert.match(await retry.text(), /"error":\{[^\n]*"code":"overloaded"/)
    }
    assert.deepEqual(await chargesOf(account), ['0', String(countedInput + 5 * 3)])
  })
}

for (const stream of [true, false]) {
  test(`a ${stream ? 'streamed' : 'buffered'} answer that becomes too long for the retry that waits costs what its first client received`, async () => {
    const account = await service.openAccount('25')
    const { exchange } = stream
      ? await cutStream(service, account, idempotent('long'))
      : await leftUnread(account, idempotent('long'))
    // Its headers come when it has joined.
    const retry = await postChat(service, account.apiKey, stream ? streamed : question, { headers: idempotent('long') })
    exchange.send(text(' four'.repeat(250_000)))
    assert.match(await retry.text(), /"error":\{[^\n]*"code":"overloaded"/)
    await exchange.hungUp
    assert.deepEqual(await chargesOf(account), [stream ? String(countedInput + 5 * 3) : '0'])
  })
}

test('a checkpoint has no output that only a retry waits for: a crash does not charge it', async () => {
  const account = await service.openAccount('25')
  const cut = await cutStream(service, account, idempotent('crash'))
  await postChat(service, account.apiKey, streamed, { headers: idempotent('crash') })
  cut.exchange.send(text(' four five six'))
  // Once a stream that began later has its second checkpoint, these words have been counted.
  const begun = nextExchange()
  const asked = postChat(service, account.apiKey, streamed)
  const exchange = await begun
  exchange.send(created, text('one'))
  const id = (await asked).headers.get('x-router-request-id')!
  await until(async () => (await checkpointOf(id)) === 1)
  exchange.send(text(' two'))
  await until(async () => (await checkpointOf(id)) === 2)
  assert.ok((await checkpointOf(cut.id)) <= 3)
  for (const { outgoing } of [cut.exchange, exchange]) outgoing.destroy()
  await until(async () => (await heldBy(account)) === 0)
})

/** So expensive that the in-flight cap admits no second one. */
const dear = { ...question, model: 'gpt-6-astra', max_tokens: 30_000 }

test('the retry of a refused request is a new request, whatever equal requests run or ran', async () => {
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

test('each of many equal requests that were refused concurrently gets its own answer in the end', async () => {
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

test('a retry that waited for an attempt without an answer gets an error, and nothing is charged', async () => {
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
  // Without the white space that keeps a connection alive: on a slow machine any answer can have it.
  return { answer, body: (await answer.text()).trimStart() }
}

/** Begins a stream, reads a little and disconnects. */
async function cutStream(node: TestService, account: TestAccount, headers: Record<string, string>) {
  const begun = nextExchange()
  const controller = new AbortController()
  const asked = postChat(node, account.apiKey, streamed, { headers, signal: controller.signal })
  const exchange = await begun
  exchange.send(created, text('one two three'))
  const answer = await asked
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader()
  for (let seen = ''; !seen.includes('three'); ) seen += (await reader.read()).value
  controller.abort()
  return { exchange, id: answer.headers.get('x-router-request-id')! }
}

/** Begins a buffered request whose client hangs up before the model wrote anything. */
async function leftUnread(account: TestAccount, headers: Record<string, string>) {
  const begun = nextExchange()
  const controller = new AbortController()
  const asked = postChat(service, account.apiKey, question, { headers, signal: controller.signal })
  asked.catch(() => {})
  const exchange = await begun
  exchange.send(created)
  controller.abort()
  return { exchange }
}

/** Begins a buffered request whose client hangs up after the model wrote something. Returns what that cost. */
async function timeOut(
  account: TestAccount,
  headers: Record<string, string>,
  generated: string,
  body: object = question,
): Promise<string> {
  const begun = nextExchange()
  const controller = new AbortController()
  const asked = postChat(hasty, account.apiKey, body, { headers, signal: controller.signal })
  asked.catch(() => {})
  const exchange = await begun
  const started = (await chargesOf(account)).length
  exchange.send(created, text(generated))
  await exchange.read()
  controller.abort()
  await exchange.hungUp
  await until(async () => (await heldBy(account)) === 0 && (await keysInUse(account)) === 0)
  return (await chargesOf(account))[started - 1]!
}

/** Waits until the ledger has the end of a request. */
async function ended(account: TestAccount, id: string): Promise<void> {
  await until(async () => (await getRow(service, account.apiKey, id)).status !== 'held')
}

/** The output tokens of a request's last checkpoint; 0 before the first. */
async function checkpointOf(id: string): Promise<number> {
  const [row] = await service.database.query<{ tokens: number | null }>(
    'select completion_tokens as tokens from holds where id = $1',
    [id.slice('req_'.length)],
  )
  return row?.tokens ?? 0
}

async function deleteKeys(account: TestAccount): Promise<void> {
  await service.database.query('delete from replays where account_id = $1', [account.id])
}

/** Heap and buffers in use, after a garbage collection. */
function memoryInUse(): number {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  collect()
  const { heapUsed, arrayBuffers } = process.memoryUsage()
  return heapUsed + arrayBuffers
}

/** The first of several promises to settle. */
async function* settledFirst<Value>(promises: readonly Promise<Value>[], count: number): AsyncGenerator<Value> {
  const open = new Map(promises.map((promise, index) => [index, promise.then((value) => ({ index, value }))]))
  for (let taken = 0; taken < count; taken += 1) {
    const { index, value } = await Promise.race(open.values())
    open.delete(index)
    yield value
  }
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

/** The charge of each request less its refund; 0 while it is open. */
async function chargesOf(account: TestAccount): Promise<string[]> {
  const rows = await service.database.query<{ charged: bigint }>(
    `select r.charged - (select coalesce(sum(j.amount), 0) from adjustments j where j.request_id = r.id)::bigint as charged
       from request_log r where r.account_id = $1 and r.status <> 'refused' order by r.id`,
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
