import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, before, beforeEach, test } from 'node:test'
import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises'
import { openDatabase } from '../../src/db/database.ts'
import { findAccount } from '../../src/ledger/accounts.ts'
import { Holds } from '../../src/ledger/holds.ts'
import { parse } from '../../src/money/usdc.ts'
import { assertBooksClosed } from '../support/audit.ts'
import { charge, hold, holdCall, openLedger, openPayer, voided } from '../support/ledger.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import {
  completed,
  created,
  functionCall,
  type ScriptedUpstream,
  startScriptedUpstream,
  text,
  type UpstreamExchange,
} from '../support/scripted-upstream.ts'
import { startScriptedWeb } from '../support/scripted-web.ts'
import {
  getRow,
  postChat,
  type RequestBody,
  startTestService,
  type TestAccount,
  type TestService,
} from '../support/service.ts'
import { until } from '../support/until.ts'
import { TcpProxy } from './tcp-proxy.ts'

// The database executes a statement and its reply is lost, never receives it, or is down: for the hold and for the end of a request.

let ledger: TestDatabase
let proxy: TcpProxy
let upstream: ScriptedUpstream
let service: TestService
let account: TestAccount
before(async () => {
  ledger = await testDatabase()
  const folder = new URL(ledger.url).searchParams.get('host')
  proxy = await TcpProxy.open(() => ({ path: `${folder}/.s.PGSQL.5432` }))
  upstream = await startScriptedUpstream()
  service = await startTestService({
    upstreamUrl: upstream.url,
    environment: { DATABASE_URL: proxied(ledger.url) },
    web: startScriptedWeb().tools,
  })
})
after(async () => {
  try {
    await assertBooksClosed(ledger.database)
  } finally {
    await service.stop()
    await upstream.close()
    await proxy.close()
    await ledger.drop()
  }
})
beforeEach(async () => {
  upstream.answer = answerWhole
  account = await service.openAccount('1')
})

const messages = [{ role: 'user', content: 'What is a penny?' }]
const price = 10 + 5 * 5

function answerWhole(exchange: UpstreamExchange): void {
  exchange.send(created, text('one two three four five'), completed())
  exchange.end()
}

for (const [what, statement] of [
  ['hold', 'place_holds'],
  ['charge', 'end_requests'],
] as const) {
  for (const [how, when] of [
    ['whose reply is lost', 'reply-lost'],
    ['that never arrives', 'unheard'],
  ] as const) {
    for (const stream of [false, true]) {
      test(`a ${what} ${how} is made once, and the ${stream ? 'streamed' : 'buffered'} answer comes`, async () => {
        const cut = proxy.use({ type: 'cut-on', pattern: statement, when })
        const answer = await postChat(service, account.apiKey, { messages, stream })
        const body = await answer.text()
        await cut
        assert.equal(answer.status, 200)
        assert.ok(body.includes(stream ? 'data: [DONE]' : '"finish_reason":"stop"'))
        await assertChargedOnce(answer)
      })
    }
  }
}

for (const [what, statement] of [
  ['extension of a hold', 'extend_holds'],
  ['line of a search', 'record_tool_calls'],
] as const) {
  for (const [how, when] of [
    ['whose reply is lost', 'reply-lost'],
    ['that never arrives', 'unheard'],
  ] as const) {
    test(`the ${what} ${how} is made once, and the answer comes`, async () => {
      let rounds = 0
      upstream.answer = (exchange) => {
        rounds += 1
        if (rounds > 1) return answerWhole(exchange)
        exchange.send(created, ...functionCall('web_search', { query: 'penny' }), completed())
        exchange.end()
      }
      const cut = proxy.use({ type: 'cut-on', pattern: statement, when })
      const answer = await postChat(service, account.apiKey, { messages, max_tokens: 100 })
      await answer.text()
      await cut
      const row = await assertChargedOnce(answer, 2 * price + 8_750)
      assert.deepEqual([row.cost.search_calls, row.cost.lines.length], [1, 3])
      assert.ok(Number(row.extended_atomic) >= 8_750 && Number(row.extended_atomic) < 2 * 8_750)
    })
  }
}

test('while the database is down requests are refused as retryable, and nothing is held', async () => {
  void proxy.use({ type: 'refuse' })
  proxy.cutAll('reset')
  const answer = await postChat(service, account.apiKey, { messages })
  void proxy.use({ type: 'pass' })
  assert.equal(answer.status, 503)
  assert.ok(answer.headers.has('retry-after'))
  assert.equal((await balance()).spendable, 1_000_000n)
  const next = await postChat(service, account.apiKey, { messages })
  await next.text()
  await assertChargedOnce(next)
})

test('a stream during a database outage completes once the database is back', async () => {
  const begun = Promise.withResolvers<UpstreamExchange>()
  upstream.answer = (exchange) => {
    exchange.send(created, text('one two'))
    begun.resolve(exchange)
  }
  const answer = await postChat(service, account.apiKey, { messages, stream: true })
  const exchange = await begun.promise
  void proxy.use({ type: 'refuse' })
  proxy.cutAll('reset')
  exchange.send(text(' three four five'), completed())
  exchange.end()
  const body = answer.text()
  // The end was attempted at least twice; only now the database comes back.
  const refused = proxy.refused
  while (proxy.refused < refused + 3) await nextTurn()
  void proxy.use({ type: 'pass' })
  assert.match(await body, /data: \[DONE\]/)
  await assertChargedOnce(answer)
})

test('an outage longer than clients and their grace periods: the retry gets the answer, and a stream ends as a whole', async () => {
  const exchanges: UpstreamExchange[] = []
  upstream.answer = (exchange) => {
    exchange.send(created, text('one two'))
    exchanges.push(exchange)
  }
  const other = await service.openAccount('1')
  const headers = { 'idempotency-key': randomUUID() }
  const client = new AbortController()
  const before = upstream.exchanges.length
  const left = postChat(service, account.apiKey, { messages }, { headers, signal: client.signal })
  const stream = await postChat(service, other.apiKey, { messages, stream: true })
  await until(() => exchanges.length === 2)
  void proxy.use({ type: 'refuse' })
  proxy.cutAll('reset')
  for (const exchange of exchanges) {
    exchange.send(text(' three four five'), completed())
    exchange.end()
  }
  const body = stream.text()
  client.abort()
  await assert.rejects(left)
  // Longer than the ledger's calls wait, and than the grace period.
  await pause(13_000)
  void proxy.use({ type: 'pass' })
  assert.match(await body, /data: \[DONE\]/)
  const retry = await postChat(service, account.apiKey, { messages }, { headers })
  assert.deepEqual([retry.status, retry.headers.get('idempotent-replayed')], [200, 'true'])
  assert.match(await retry.text(), /one two three four five/)
  await assertChargedOnce(retry)
  assert.equal(upstream.exchanges.length, before + 2)
})

test('a buffered answer waits for its charge as long as its client does, so it is never charged and refused', async () => {
  const database = openDatabase({ url: proxied(ledger.url), poolMax: 1, applicationName: 'test' })
  const node = randomUUID()
  const ready = await openLedger(database, { node })
  const holds = new Holds({ database, node, priceVersion: 'test', inFlightCap: parse('1'), waitMsMax: 1 })
  const payer = await openPayer(ledger.database, 10_000n)
  const [first, second] = [await hold(ready, payer, 1_000n), await hold(ready, payer, 1_000n)]
  const away = proxy.refused
  void proxy.use({ type: 'refuse' })
  proxy.cutAll('reset')
  const client = Promise.withResolvers<void>()
  const [waited, left] = [
    holds.end(charge(first, 300n), () => new Promise(() => {})),
    holds.end(charge(second, 300n), () => client.promise),
  ]
  while (proxy.refused < away + 3) await nextTurn()
  client.resolve()
  await assert.rejects(left, { code: 'overloaded' })
  void proxy.use({ type: 'pass' })
  assert.deepEqual(await waited, { endedNow: true, status: 'succeeded', charged: 300n })
  await holds.drained()
  await database.close()
})

test('a hold that another node ended as an orphan before its reply arrived is not used', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 10_000n)
  const call = holdCall(payer, 1_000n)
  const decision = await holds.place(call)
  assert.ok('hold' in decision)
  await holds.end(voided(decision.hold))
  await assert.rejects(holds.place(call), { code: 'overloaded' })
})

/** The same database, through the proxy. */
function proxied(url: string): string {
  const { username, pathname } = new URL(url)
  return `postgres://${username}@127.0.0.1:${proxy.port}${pathname}?sslmode=disable`
}

async function assertChargedOnce(answer: Response, charged = price): Promise<RequestBody> {
  const row = await getRow(service, account.apiKey, answer)
  assert.deepEqual([row.status, Number(row.charged_atomic)], ['succeeded', charged])
  const requests = await ledger.database.query('select id from requests where account_id = $1 and charged > 0', [
    account.id,
  ])
  assert.equal(requests.length, 1)
  const { spendable, held } = await balance()
  assert.deepEqual([spendable, held], [1_000_000n - BigInt(charged), 0n])
  return row
}

async function balance() {
  return (await findAccount(ledger.database, account.partition, account.id))!
}
