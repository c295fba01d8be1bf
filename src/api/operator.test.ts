import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, before, test } from 'node:test'
import {
  createWallet,
  DashboardClient,
  type Json,
  signedMessage,
  signInNew,
} from '../../test/support/dashboard-client.ts'
import { postChat, startTestService, type TestService, withoutTools } from '../../test/support/service.ts'
import { createKey } from '../identity/api-keys.ts'
import { suspendAccount } from '../ledger/accounts.ts'
import { freezeLedger } from '../ledger/freeze.ts'

// A signed-in wallet or an account id makes an operator; everyone else gets 404.

const wallet = createWallet()
let service: TestService
let operator: DashboardClient
before(async () => {
  const environment = { TRUST_PROXY: 'true', OPERATORS: ` ${wallet.address} , ${randomUUID()}` }
  service = await startTestService({ environment })
  operator = new DashboardClient(service)
  await operator.post('/api/auth/wallet', await signedMessage(operator, wallet))
})
after(() => service.stop())

const paths = ['/api/operator/accounts', '/api/operator/revenue', '/api/operator/health']
const pages = ['/operator', '/operator/accounts', '/operator/revenue']
const html = { accept: 'text/html' }

async function answerOf(client: DashboardClient, path: string, method = 'GET') {
  const answer = await client.send(method, path)
  const { request_id, ...error } = ((await answer.json()) as Json).error ?? {}
  return { status: answer.status, error, id: request_id }
}

test('an operator sees the pages and their data, and the session says so', async () => {
  assert.equal((await operator.get('/api/session')).operator, true)
  for (const path of paths) assert.equal((await operator.send('GET', path)).status, 200, path)
  for (const path of pages) assert.equal((await operator.send('GET', path, undefined, html)).status, 200, path)
})

test('it is 404 for everyone else: no session, another customer, an expired session, an API key', async () => {
  const customer = await signInNew(service)
  const expired = new DashboardClient(service)
  await expired.post('/api/auth/wallet', await signedMessage(expired, wallet))
  const { session } = await expired.get('/api/session')
  await service.database.query('update sessions set expires_at = clock_timestamp() where id = $1', [session.id])
  assert.equal((await customer.get('/api/session')).operator, false)
  for (const client of [new DashboardClient(service), customer, expired]) {
    for (const path of paths) {
      for (const method of ['GET', 'POST', 'DELETE']) {
        const unknown = await answerOf(client, '/api/nothing-here', method)
        const { status, error } = await answerOf(client, path, method)
        assert.equal(status, 404)
        assert.deepEqual(error, { ...unknown.error, message: unknown.error.message.replace('/api/nothing-here', path) })
      }
    }
    for (const path of pages) {
      const [page, unknown] = await Promise.all(
        [path, '/operators'].map((one) => client.send('GET', one, undefined, html)),
      )
      assert.deepEqual([page!.status, await page!.text()], [404, await unknown!.text()], path)
    }
  }
  const { apiKey } = await service.openAccount('1')
  const answer = await fetch(`${service.origin}${paths[0]}`, { headers: { authorization: `Bearer ${apiKey}` } })
  assert.equal(answer.status, 404)
})

// An owner address is registered without a proof. If it were enough, anyone could register the operator's address and become one.
test('an account with the operator’s wallet as its owner address is not an operator', async () => {
  const customer = await signInNew(service)
  await service.database.query('update accounts set owner_address = $2 where id = $1', [
    customer.accountId,
    wallet.address.toLowerCase(),
  ])
  assert.equal((await customer.get('/api/session')).operator, false)
  assert.equal((await customer.send('GET', paths[0]!)).status, 404)
})

test('accounts are found by id, name and address, with what they have and spent', async () => {
  const account = await service.openAccount('2', {})
  await service.database.query(`update accounts set name = 'Acme 100%_Ltd', address = $2 where id = $1`, [
    account.id,
    `0x${'a1'.repeat(20)}`,
  ])
  const answer = await postChat(service, account.apiKey, {
    messages: [{ role: 'user', content: 'Hi' }],
    max_tokens: 50,
    ...withoutTools,
  })
  const charged = answer.headers.get('x-router-charged-usdc')!
  await answer.text()
  const customer = await signInNew(service)
  const find = async (text: string) =>
    (await operator.get(`/api/operator/accounts?find=${encodeURIComponent(text)}`)).data
  for (const text of [account.id, account.id.toUpperCase(), 'acme 100%_l', `0x${'A1'.repeat(20)}`]) {
    const [found, ...more] = await find(text)
    assert.deepEqual([found.id, more.length], [account.id, 0], text)
    assert.equal(found.spend_30d_atomic, charged)
    assert.equal(BigInt(found.available_atomic), 2_000_000n - BigInt(charged))
    assert.ok(Date.now() - Date.parse(found.last_request_at) < 60_000)
    assert.equal(found.status, 'open')
  }
  // A sign-in wallet finds its account too; what matches nothing finds nothing, and a wildcard is a character.
  const { wallets } = (await customer.get('/api/session')).account
  assert.equal((await find(wallets[0].address))[0].id, customer.accountId)
  for (const text of ['nobody', '%', '_cme', randomUUID(), `0x${'00'.repeat(20)}`])
    assert.deepEqual(await find(text), [], text)
  const [bare] = await find(customer.accountId)
  assert.deepEqual([bare.last_request_at, bare.spend_30d_atomic], [null, '0'])
})

test('twenty thousand accounts are read page by page, each once, without reading them all for a page', async () => {
  await service.database.query(
    `insert into accounts (partition, id, name, created_at)
     select 0, gen_random_uuid(), 'bulk ' || n, timestamptz '2026-01-01' + (n / 3) * interval '1 microsecond'
       from generate_series(1, 20000) n`,
  )
  await service.database.query('analyze accounts')
  const seen = new Set<string>()
  let cursor: string | null = null
  let pagesRead = 0
  do {
    const next: string = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`
    const page: Json = await operator.get(`/api/operator/accounts?find=bulk&limit=200${next}`)
    for (const { id } of page.data) {
      assert.ok(!seen.has(id))
      seen.add(id)
    }
    cursor = page.next_cursor
    pagesRead += 1
  } while (cursor !== null && pagesRead < 12)
  assert.equal(seen.size, 12 * 200)
  const plan = await service.database.query<{ 'QUERY PLAN': string }>(
    `explain select * from accounts a where $1::text is null and ($2::timestamptz is null or (a.created_at, a.id) < ($2, $3))
      order by a.created_at desc, a.id desc limit 51`,
    [null, '2026-01-01T00:00:00.003Z', randomUUID()],
  )
  assert.match(JSON.stringify(plan), /accounts_newest/)
  for (const cursor of ['nonsense', Buffer.from('["x","y"]').toString('base64url'), 'e30']) {
    assert.deepEqual(await operator.refusal('GET', `/api/operator/accounts?cursor=${cursor}`), [400, 'invalid_value'])
  }
})

test('an operator who asks for everything at once uses two connections, and customers are served meanwhile', async () => {
  const account = await service.openAccount('2')
  const asked = Array.from({ length: 60 }, (_, index) => operator.send('GET', paths[index % 3]!))
  const body = { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 50, ...withoutTools }
  assert.equal((await postChat(service, account.apiKey, body)).status, 200)
  for (const answer of await Promise.all(asked)) assert.ok([200, 429, 503].includes(answer.status), `${answer.status}`)
  const [used] = await service.database.query<{ connections: number }>(
    `select count(*)::int as connections from pg_stat_activity
      where application_name = 'penny operator' and datname = current_database()`,
  )
  assert.ok(used!.connections >= 1 && used!.connections <= 2)
})

test('revenue by day and model is the sum of what customers were charged, and an unknown cost is said to be unknown', async () => {
  const account = await service.openAccount('2')
  for (const model of ['gpt-5.6-luna', 'gpt-5.6-sol']) {
    const body = { model, messages: [{ role: 'user', content: 'Hi' }], max_tokens: 50, ...withoutTools }
    assert.equal((await postChat(service, account.apiKey, body)).status, 200)
  }
  const old = new Date(Date.now() - 20 * 86_400_000).toISOString().slice(0, 10)
  await service.database.query(
    `update usage_hours set hour = $2::date at time zone 'UTC' where account_id = $1 and model = 'gpt-5.6-sol'`,
    [account.id, old],
  )
  const revenue = await operator.get('/api/operator/revenue?days=30')
  const [sum] = await service.database.query<{ charged: bigint; requests: bigint }>(
    'select sum(charged)::bigint as charged, sum(succeeded + failed + cancelled)::bigint as requests from usage_hours',
  )
  assert.deepEqual(
    [revenue.total.charged_atomic, revenue.total.requests],
    [String(sum!.charged), Number(sum!.requests)],
  )
  assert.equal(revenue.days.length, 30)
  const day = revenue.days.find((one: Json) => one.day === old)
  assert.deepEqual(
    day.models.map(({ model }: Json) => model),
    ['gpt-5.6-sol'],
  )
  const total = (rows: Json[]) => rows.reduce((all, { charged_atomic }) => all + BigInt(charged_atomic), 0n)
  assert.equal(total(revenue.days), total(revenue.models))
  assert.deepEqual([revenue.total.upstream_cost, revenue.total.margin], [null, null])
  assert.match(revenue.upstream_cost_note, /no known upstream cost/)
  assert.deepEqual([...new Set(revenue.providers.map(({ provider }: Json) => provider))], ['upstream'])
  assert.deepEqual(await operator.refusal('GET', '/api/operator/revenue?days=91'), [400, 'invalid_value'])
})

test('what needs attention is listed with its age and its runbook, and the runbook is a page', async () => {
  const account = await service.openAccount('5')
  await suspendAccount(service.database, account, 'stolen key')
  const { id: keyId } = await createKey(service.database, { ...account, accountId: account.id, name: 'stuck' })
  await service.database.query(
    `insert into transfers (partition, kind, id, account_id, amount, counterparty, state, created_at)
     values ($1, 'withdrawal', $2, $3, 1000, $4, 'requested', clock_timestamp() - interval '2 hours')`,
    [account.partition, randomUUID(), account.id, `0x${'b2'.repeat(20)}`],
  )
  await freezeLedger(service.database, 'I4 is broken at a test')
  const health = await operator.get('/api/operator/health')
  const codes = health.attention.map(({ code }: Json) => code)
  for (const code of ['ledger_frozen', 'account_suspended', 'withdrawal_stuck'])
    assert.ok(codes.includes(code), `${codes}`)
  assert.equal(health.attention[0].level, 'error')
  const stuck = health.attention.find(({ code }: Json) => code === 'withdrawal_stuck')
  assert.equal(stuck.account_id, account.id)
  assert.ok(Date.now() - Date.parse(stuck.since) > 7_000_000)
  for (const runbook of new Set<string>(health.attention.map((item: Json) => item.runbook))) {
    assert.equal((await fetch(service.origin + runbook)).status, 200, runbook)
  }
  const [node] = health.nodes.filter((one: Json) => one.this_node)
  assert.ok(node.alive && node.lease_seconds > 0)
  assert.ok(health.queues.find(({ name }: Json) => name === 'Withdrawals in progress').waiting >= 1)
  await service.database.query('delete from transfers where account_id = $1', [account.id])
  assert.ok(!JSON.stringify(health).includes(keyId))
})
