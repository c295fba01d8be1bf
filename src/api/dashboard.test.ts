import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { type DashboardClient, type Json, signInNew } from '../../test/support/dashboard-client.ts'
import { completed, created, text } from '../../test/support/scripted-upstream.ts'
import { postChat, startTestService } from '../../test/support/service.ts'
import { serviceSuite } from '../../test/support/suites.ts'
import { until } from '../../test/support/until.ts'
import { adjustAccount } from '../ledger/adjustments.ts'
import { parseRequestId } from '../ledger/request-id.ts'
import type { Contract } from '../openapi/contract.ts'
import { chatContracts } from '../openapi/contracts/chat.ts'
import { fundsContracts } from '../openapi/contracts/funds.ts'
import { keyContracts } from '../openapi/contracts/keys.ts'
import { requestContracts } from '../openapi/contracts/requests.ts'
import { signInContracts } from '../openapi/contracts/sign-in.ts'
import { statusContracts } from '../openapi/contracts/status.ts'
import { usageContracts } from '../openapi/contracts/usage.ts'

// An account with some history, looked at from every side: what the dashboard shows is what the ledger has.

const question = [{ role: 'user', content: 'What is a penny?' }]
let client: DashboardClient & { accountId: string }
let stranger: DashboardClient
type MadeKey = { readonly id: string; readonly secret: string }
let keys: readonly [MadeKey, MadeKey]

const suite = serviceSuite({ TRUST_PROXY: '1', STREAM_KEEPALIVE_MS: '100' }, async (service) => {
  client = await signInNew(service, '10')
  stranger = await signInNew(service, '1')
  keys = [
    await client.post('/api/keys', { name: 'first' }),
    await client.post('/api/keys', { name: '=SUM(A1)', limit: '5', limit_window: 'day' }),
  ]
  suite.upstream.answer = (exchange) => {
    const asked = JSON.stringify(exchange.body)
    if (asked.includes('please fail')) {
      exchange.outgoing.writeHead(500).end('{}')
      return
    }
    exchange.send(created, text('A coin.'), completed({ input_tokens: 11, output_tokens: 7, total_tokens: 18 }))
    exchange.end()
  }
  const [first, second] = keys
  for (let index = 0; index < 7; index += 1) {
    await send(first.secret, { messages: question, model: index % 2 === 0 ? 'gpt-5.6-terra' : 'gpt-6-astra' })
  }
  await send(second.secret, { messages: question, stream: true })
  await send(second.secret, { messages: [{ role: 'user', content: 'please fail' }] })
  await send(second.secret, { messages: question, model: 'no-such-model' })
  await send(second.secret, { messages: question, n: 2 })
  await until(async () => (await client.get('/api/requests')).data.length === 11)
})

async function send(secret: string, body: object): Promise<void> {
  await (await postChat(suite.service, secret, body)).arrayBuffer()
}

async function ledgerSum(where = 'true'): Promise<{ count: bigint; charged: bigint }> {
  const [sum] = await suite.service.database.query<{ count: bigint; charged: bigint }>(
    `select count(*) as count, coalesce(sum(charged), 0)::bigint as charged from requests where account_id = $1 and ${where}`,
    [client.accountId],
  )
  return sum!
}

test('every answer has the shape that openapi.json promises', async () => {
  const [key] = keys
  const [row] = (await client.get('/api/requests')).data
  const looked: [Contract, string][] = [
    [signInContracts.getSession, '/api/session'],
    [signInContracts.listSessions, '/api/sessions'],
    [statusContracts.getStatus, '/api/status'],
    [requestContracts.listRequests, '/api/requests'],
    [requestContracts.getRequestTotals, '/api/requests/totals'],
    [requestContracts.getRequest, `/api/requests/${row.id}`],
    [keyContracts.listKeys, '/api/keys'],
    [keyContracts.getKey, `/api/keys/${key.id}`],
    [fundsContracts.getBalance, '/api/balance'],
    [fundsContracts.listDeposits, '/api/deposits'],
    [fundsContracts.listWithdrawals, '/api/withdrawals'],
    [fundsContracts.listAdjustments, '/api/adjustments'],
    [fundsContracts.getStatement, '/api/statement'],
    [fundsContracts.getSolvency, '/api/solvency'],
    [chatContracts.exportAccount, '/api/export'],
    ...(['none', 'model', 'key', 'component', 'status'] as const).map((group): [Contract, string] => [
      usageContracts.getUsage,
      `/api/usage?group_by=${group}&latency=true`,
    ]),
    ...(['24h', '7d', '30d'] as const).map((range): [Contract, string] => [
      usageContracts.getOverview,
      `/api/overview?range=${range}`,
    ]),
  ]
  for (const [{ answer }, path] of looked) answer!.parse(await client.get(path))
  const body = { key_id: key.id, messages: question }
  chatContracts.createPlaygroundQuote.answer.parse(await client.post('/api/quote', body))
})

test('the model that the first snippets name is one that can be called, whatever list the operator has', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'penny-models-'))
  const file = join(folder, 'models.json')
  const prices = { input_per_million: '1', output_per_million: '5', max_output_tokens: 1000 }
  writeFileSync(
    file,
    JSON.stringify([
      { id: 'large', ...prices },
      { id: 'small', ...prices, default: true },
    ]),
  )
  const beside = await startTestService({ besideOf: suite.service, environment: { MODELS_FILE: file } })
  try {
    const { default_model } = (await (await fetch(`${beside.origin}/api/session`)).json()) as Json
    assert.equal(default_model, 'small')
    const { data } = (await (await fetch(`${beside.baseUrl}/models`)).json()) as Json
    assert.ok(data.some(({ id }: Json) => id === default_model))
  } finally {
    await beside.stop()
    rmSync(folder, { recursive: true })
  }
})

test('pages of the log, read to the end, have every request once, newest first', async () => {
  const ids: string[] = []
  let cursor = ''
  do {
    const page = await client.get(`/api/requests?limit=3${cursor && `&cursor=${cursor}`}`)
    ids.push(...page.data.map(({ id }: Json) => id))
    cursor = page.next_cursor ?? ''
    assert.equal(page.has_more, cursor !== '')
  } while (cursor !== '')
  assert.equal(ids.length, 11)
  assert.deepEqual(ids, [...new Set(ids)].sort().reverse())
})

test('each filter and all of them together give what the ledger has, in rows, totals and files', async () => {
  const [first, second] = keys
  const hour = new Date(Date.now() - 3_600_000).toISOString()
  const filters: [string, string][] = [
    ['', 'true'],
    ['status=succeeded', "status = 'succeeded'"],
    ['status=failed&status=refused', "status in ('failed', 'refused')"],
    ['error_code=model_not_found', "error_code = 'model_not_found'"],
    ['model=gpt-6-astra', "model = 'gpt-6-astra'"],
    ['model=gpt-6-astra&model=gpt-5.6-terra', "model in ('gpt-6-astra', 'gpt-5.6-terra')"],
    [`key=${first.id}`, `key_id = '${first.id}'`],
    [`key=${first.id}&key=${second.id}`, 'true'],
    ['has_search=true', 'search_calls > 0'],
    ['has_search=false&stream=true', 'search_calls = 0 and stream'],
    ['min_cost=0.0001', 'charged >= 100'],
    [`from=${encodeURIComponent(hour)}`, `created_at >= '${hour}'`],
    [`to=${encodeURIComponent(hour)}`, `created_at < '${hour}'`],
    [
      `key=${first.id}&model=gpt-6-astra&status=succeeded&min_cost=0.000001`,
      `key_id = '${first.id}' and model = 'gpt-6-astra'`,
    ],
  ]
  for (const [query, where] of filters) {
    const { count, charged } = await ledgerSum(where)
    const { data } = await client.get(`/api/requests?${query}`)
    const sum = (rows: Json[]) => rows.reduce((total: bigint, row: Json) => total + BigInt(row.charged_atomic), 0n)
    assert.deepEqual([BigInt(data.length), sum(data)], [count, charged], query)
    const totals = await client.get(`/api/requests/totals?${query}`)
    const refused = (await ledgerSum(`${where} and status = 'refused'`)).count
    assert.deepEqual(
      [BigInt(totals.requests), BigInt(totals.refused), BigInt(totals.charged_atomic)],
      [count - refused, refused, charged],
      query,
    )
    const lines = await readText(`/api/requests?${query}&format=ndjson`)
    const exported = lines
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line))
    assert.deepEqual([BigInt(exported.length), sum(exported)], [count, charged], query)
    const csv = (await readText(`/api/requests?${query}`, { accept: 'text/csv' })).trim().split('\r\n')
    const column = csv[0]!.split(',').indexOf('charged_atomic')
    const csvSum = csv.slice(1).reduce((total, line) => total + BigInt(line.split(',')[column]!), 0n)
    assert.deepEqual([BigInt(csv.length - 1), csvSum], [count, charged], query)
  }
})

test('a CSV file contains no formula from user input', async () => {
  const csv = await readText('/api/requests', { accept: 'text/csv' })
  assert.ok(csv.includes(",'=SUM(A1),"))
})

test('a request is found by its id or its completion’s id, and not by an invalid id', async () => {
  const [row] = (await client.get('/api/requests?status=succeeded')).data
  for (const text of [row.id, row.id.toUpperCase(), row.id.replace('req_', 'chatcmpl-')]) {
    const { data } = await client.get(`/api/requests?find=${text}`)
    assert.deepEqual(
      data.map(({ id }: Json) => id),
      [row.id],
    )
  }
  for (const text of ['nothing', `0x${'a'.repeat(64)}`]) {
    assert.deepEqual((await client.get(`/api/requests?find=${text}`)).data, [])
  }
})

test('the settlement of a request is in its row, and the transaction finds it', async () => {
  const [row] = (await client.get('/api/requests?status=succeeded')).data
  const txHash = 'ab'.repeat(32)
  const { database } = suite.service
  await database.query(
    `select make_payments(a.partition, array[a.id], '{}', 4096, 1000000000, 0) from accounts a
      where a.id = (select r.account_id from requests r where r.id = $1)`,
    [row.id.slice(4)],
  )
  const [payment] = await database.query<{ entries: number }>(
    `update payments set tx_hash = decode($1, 'hex'), batch = 1 returning (last_entry - first_entry + 1)::int as entries`,
    [txHash],
  )
  const { data } = await client.get(`/api/requests?find=0x${txHash}&limit=100`)
  assert.equal(data.length, payment!.entries)
  const found = data.find(({ id }: { id: string }) => id === row.id)
  assert.equal(found.settlement.tx_hash, `0x${txHash}`)
  assert.deepEqual([found.settlement.payment.number, found.settlement.payment.entries], ['1', payment!.entries])
  assert.deepEqual(found.receipt, { id: row.id, number: found.receipt.number, batched: true, url: `/r/${row.id}` })
  assert.deepEqual((await stranger.get(`/api/requests?find=0x${txHash}`)).data, [])
})

test('the sums of the charts are the sums of the ledger, however they are split', async () => {
  const { charged } = await ledgerSum()
  for (const group of ['none', 'model', 'key', 'component', 'status']) {
    for (const granularity of ['minute', 'hour', 'day']) {
      const from = encodeURIComponent(new Date(Date.now() - 2 * 3_600_000).toISOString())
      const usage = await client.get(`/api/usage?from=${from}&group_by=${group}&granularity=${granularity}`)
      const add = (items: Json[]) => items.reduce((sum: bigint, item: Json) => sum + BigInt(item.spend_atomic), 0n)
      assert.equal(BigInt(usage.total.spend_atomic), charged, `${group} ${granularity}`)
      assert.equal(add(usage.buckets.map(({ total }: Json) => total)), charged)
      assert.equal(add(usage.series.map(({ total }: Json) => total)), charged)
      assert.equal(add(usage.series.flatMap(({ points }: Json) => points)), charged)
      if (group !== 'component') assert.deepEqual([usage.total.requests, usage.total.refused], [9, 2])
    }
  }
})

test('the overview counts what happened and says what to do next', async () => {
  const overview = await client.get('/api/overview')
  assert.deepEqual([overview.tiles.requests.value, overview.tiles.refused.value], [9, 2])
  assert.equal(overview.tiles.error_rate.value, 3 / 11)
  assert.equal(BigInt(overview.tiles.spend.value_atomic), (await ledgerSum()).charged)
  assert.equal(overview.recent.length, 8)
  assert.deepEqual(overview.checklist, { funded: true, key_created: true, request_sent: true })
  assert.ok(overview.tiles.total_ms_p95.value >= 0)
  assert.deepEqual((await stranger.get('/api/overview')).checklist, {
    funded: true,
    key_created: false,
    request_sent: false,
  })
})

test('"requests" means the same everywhere: admitted ones, with the refused ones apart', async () => {
  const usage = (await client.get('/api/usage')).total
  const totals = await client.get('/api/requests/totals')
  const { tiles } = await client.get('/api/overview')
  const { lines } = await client.get('/api/statement')
  const statement = lines
    .filter(({ kind }: Json) => kind === 'inference')
    .reduce((sum: number, { count }: Json) => sum + count, 0)
  assert.deepEqual(
    [usage.requests, totals.requests, tiles.requests.value, statement],
    Array.from({ length: 4 }, () => 9),
  )
  assert.deepEqual([usage.refused, totals.refused, tiles.refused.value], [2, 2, 2])
})

test('the time that the service was down is in no latency percentile', async () => {
  const [failed] = (await client.get('/api/requests?status=failed')).data
  const id = parseRequestId(failed.id)
  const { database } = suite.service
  const set = `update requests set error_code = $2, total_ms = $3 where id = $1`
  await database.query(set, [id, 'interrupted', 7_000_000])
  const { tiles } = await client.get('/api/overview')
  const usage = await client.get('/api/usage?latency=true')
  await database.query(set, [id, failed.error.code, failed.latency.total_ms])
  assert.ok(tiles.total_ms_p95.value < 7_000_000)
  assert.ok(usage.total.latency.total_ms_p95 < 7_000_000)
  assert.equal(usage.total.latency.requests, 8)
})

test('the balance is the ledger’s, to the atomic unit', async () => {
  const balance = await client.get('/api/balance')
  assert.equal(BigInt(balance.available_atomic), 10_000_000n - (await ledgerSum()).charged)
  assert.equal(balance.deposited, '10')
  assert.equal(balance.open_requests, 0)
})

test('a statement closes on the balance, and a future or invalid month is refused', async () => {
  const { closing_atomic, adds_up } = await client.get('/api/statement')
  const balance = await client.get('/api/balance')
  assert.equal(adds_up, true)
  assert.equal(
    BigInt(closing_atomic),
    BigInt(balance.gateway_atomic) + BigInt(balance.credit_atomic) + BigInt(balance.held_atomic),
  )
  assert.deepEqual(await client.refusal('GET', '/api/statement?month=2099-01'), [400, 'invalid_value'])
  assert.deepEqual(await client.refusal('GET', '/api/statement?month=2026-13'), [400, 'invalid_value'])
  const before = await client.get('/api/statement?month=2020-01')
  assert.deepEqual([before.opening_atomic, before.lines, before.closing_atomic, before.adds_up], ['0', [], '0', true])
})

test('a key’s page has each of the last thirty days, also those on which it was idle', async () => {
  const dayNow = () => new Date().toISOString().slice(0, 10)
  const earliest = dayNow()
  const { spend_by_day } = await client.get(`/api/keys/${keys[0].id}`)
  const last: string = spend_by_day.at(-1).day
  // At midnight the day can change while the page is read.
  assert.ok(earliest <= last && last <= dayNow(), last)
  const today = Date.parse(last)
  const days = Array.from({ length: 30 }, (_, index) => new Date(today - (29 - index) * 86_400_000))
  assert.deepEqual(
    spend_by_day.map(({ day }: Json) => day),
    days.map((day) => day.toISOString().slice(0, 10)),
  )
  const { charged } = await ledgerSum(`key_id = '${keys[0].id}'`)
  assert.equal(BigInt(spend_by_day.at(-1).spend_atomic) + BigInt(spend_by_day.at(-2).spend_atomic), charged)
  assert.ok(
    spend_by_day.slice(0, 28).every(({ spend_atomic, requests }: Json) => spend_atomic === '0' && requests === 0),
  )
})

test('to another account nothing of this one exists', async () => {
  const [key] = keys
  const [row] = (await client.get('/api/requests')).data
  const session = (await client.get('/api/session')).session.id
  const attempts: [string, string, unknown?][] = [
    ['GET', `/api/requests/${row.id}`],
    ['GET', `/api/keys/${key.id}`],
    ['PATCH', `/api/keys/${key.id}`, { name: 'mine' }],
    ['POST', `/api/keys/${key.id}/rotate`, {}],
    ['DELETE', `/api/keys/${key.id}`],
    ['DELETE', `/api/sessions/${session}`],
    ['POST', '/api/playground', { key_id: key.id, messages: question }],
    ['POST', '/api/quote', { key_id: key.id, messages: question }],
  ]
  for (const [method, path, body] of attempts) {
    assert.equal((await stranger.refusal(method, path, body))[0], 404, `${method} ${path}`)
  }
  for (const path of ['/api/requests', `/api/requests?key=${key.id}`, '/api/keys']) {
    assert.deepEqual((await stranger.get(path)).data, [])
  }
  assert.equal((await stranger.get(`/api/usage?key=${key.id}`)).total.requests, 0)
  assert.equal((await client.get(`/api/keys/${key.id}`)).name, 'first')
})

test('a quote is exactly what the request then holds, and says why one would be refused', async () => {
  const [key] = keys
  const body = { messages: question, max_tokens: 500 }
  const quoted = await client.post('/api/quote', { key_id: key.id, ...body })
  const byKey = await fetch(`${suite.service.baseUrl}/quote`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key.secret}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  assert.equal(((await byKey.json()) as Json).quote_atomic, quoted.quote_atomic)
  assert.equal(quoted.admitted, true)
  const answer = await postChat(suite.service, key.secret, body)
  assert.equal(answer.headers.get('x-router-held-usdc'), quoted.quote_atomic)
  await answer.arrayBuffer()

  const dear = await client.post('/api/quote', {
    key_id: key.id,
    model: 'gpt-6-astra',
    messages: question,
    max_tokens: 128_000,
  })
  assert.deepEqual([dear.admitted, dear.refusal.code], [false, 'quote_exceeds_cap'])
  const fitting = { key_id: key.id, model: 'gpt-6-astra', messages: question, max_tokens: dear.affordable_max_tokens }
  assert.equal((await client.post('/api/quote', fitting)).admitted, true)
  assert.equal((await client.post('/api/quote', { ...fitting, max_tokens: fitting.max_tokens + 1 })).admitted, false)

  const { database } = suite.service
  const { account } = await client.get('/api/session')
  await database.query('update accounts set charged = charged + 10000000000000 where id = $1', [account.id])
  assert.equal((await client.post('/api/quote', fitting)).refusal.code, 'settlement_delayed')
  await database.query('update accounts set charged = charged - 10000000000000 where id = $1', [account.id])
})

test('the playground answers like the API and is charged to the chosen key', async () => {
  const made = await client.post('/api/keys', { name: 'playground' })
  const answer = await client.send('POST', '/api/playground', { key_id: made.id, messages: question })
  assert.equal(answer.status, 200)
  const id = answer.headers.get('x-router-request-id')
  assert.equal(((await answer.json()) as Json).choices[0].message.content, 'A coin.')
  const row = await client.get(`/api/requests/${id}`)
  assert.deepEqual([row.status, row.key.id], ['succeeded', made.id])
  assert.equal((await client.get(`/api/keys/${made.id}`)).spent_atomic, row.charged_atomic)
  const stream = await client.send('POST', '/api/playground', { key_id: made.id, messages: question, stream: true })
  assert.match(await stream.text(), /data: \[DONE\]/)
})

test('the export has everything of the account and its sum is the ledger’s', async () => {
  const exported = await client.get('/api/export')
  const sum = exported.requests.reduce((total: bigint, row: Json) => total + BigInt(row.charged_atomic), 0n)
  const { count, charged } = await ledgerSum()
  assert.deepEqual([BigInt(exported.requests.length), sum], [count, charged])
  assert.equal(exported.account.id, client.accountId)
  assert.ok(exported.keys.length >= 2 && exported.deposits.length >= 1)
})

test('refunds by the operator are shown with their reason, in pages and in the export, to their account only', async () => {
  const other = await signInNew(suite.service)
  const { database } = suite.service
  const [account] = await database.query<{ partition: number }>('select partition from accounts where id = $1', [
    client.accountId,
  ])
  for (const amount of [2n, -1n]) {
    const adjustment = { id: randomUUID(), amount, reason: `the model was down ${amount}`, madeBy: 'operator' }
    await adjustAccount(database, { partition: account!.partition, id: client.accountId }, adjustment)
    // Lists are sorted by the millisecond, and within one by id: the next one must be newer.
    await sleep(2)
  }
  const page = await client.get('/api/adjustments?limit=1')
  const next = await client.get(`/api/adjustments?limit=1&cursor=${page.next_cursor}`)
  const told = [...page.data, ...next.data].map(({ amount_atomic, reason }: Json) => [amount_atomic, reason])
  assert.deepEqual(told, [
    ['-1', 'the model was down -1'],
    ['2', 'the model was down 2'],
  ])
  assert.deepEqual([page.has_more, next.has_more], [true, false])
  const { adjustments } = await client.get('/api/export')
  assert.deepEqual(adjustments, [...page.data, ...next.data])
  assert.ok(!JSON.stringify(adjustments).includes('operator'), 'who did it is the operator’s own affair')
  assert.deepEqual((await other.get('/api/adjustments')).data, [])
})

test('features that are not configured say so, and move nothing', async () => {
  const withdrawal = { amount: '1', recipient: `0x${'1'.repeat(40)}` }
  const refusal = await client.refusal('POST', '/api/withdrawals', withdrawal, { 'idempotency-key': 'a-form-of-mine' })
  assert.deepEqual(refusal, [503, 'settlement_delayed'])
  assert.deepEqual(await client.refusal('POST', '/api/faucet', {}), [404, 'unknown_url'])
  assert.deepEqual(await client.refusal('POST', '/api/sandbox/mine', { blocks: 1 }), [404, 'unknown_url'])
  const { ok, checked_at } = await client.get('/api/solvency')
  assert.deepEqual([ok, checked_at], [false, null], 'nothing was compared, so nothing is claimed')
})

async function readText(path: string, headers: Record<string, string> = {}): Promise<string> {
  const answer = await client.send('GET', path, undefined, headers)
  assert.equal(answer.status, 200)
  return answer.text()
}
