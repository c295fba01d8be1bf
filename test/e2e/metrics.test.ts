import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { type IncomingMessage, request } from 'node:http'
import { after, before, test } from 'node:test'
import { callChat, endedRow, framesOf, readContent } from '../support/chat-client.ts'
import { type ParsedMetric, parseMetrics, sampleValue } from '../support/prometheus.ts'
import { startScriptedWeb } from '../support/scripted-web.ts'
import { getRow, postChat, startTestService, type TestService, withoutTools } from '../support/service.ts'
import { until } from '../support/until.ts'

const model = 'gpt-5.6-terra'
const question = { messages: [{ role: 'user', content: 'What is a penny?' }], ...withoutTools }

let service: TestService
before(async () => {
  service = await startTestService({ web: startScriptedWeb().tools })
})
after(() => service.stop())

async function readMetrics(from = service): Promise<ReadonlyMap<string, ParsedMetric>> {
  const response = await fetch(`${from.origin}/metrics`)
  assert.equal(response.status, 200)
  assert.equal(response.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8')
  return parseMetrics(await response.text())
}

test('the metrics page is valid from the first moment, and its ledger numbers are right', async () => {
  const page = await readMetrics()
  assert.equal(sampleValue(page, 'penny_ledger_frozen'), 0)
  assert.equal(sampleValue(page, 'penny_ledger_violations', { scope: 'recent' }) ?? 0, 0)
  assert.ok(page.has('penny_ledger_imbalance_micro_usdc'))
  for (const name of ['penny_event_loop_lag_seconds', 'process_resident_memory_bytes', 'penny_nodes_alive'])
    assert.ok(page.get(name)!.samples.length > 0, name)
})

test('what requests cost, counted and waited is on the page, to the atomic unit', async () => {
  const account = await service.openAccount('1')
  const before = await readMetrics()
  const buffered = await postChat(service, account.apiKey, question)
  await buffered.json()
  const streamed = await postChat(service, account.apiKey, { ...question, stream: true })
  await streamed.text()
  await (await postChat(service, account.apiKey, { ...question, max_tokens: -1 })).json()
  await (await postChat(service, `${account.apiKey.slice(0, -1)}_`, question)).json()
  const rows = await Promise.all([buffered, streamed].map((answer) => getRow(service, account.apiKey, answer)))
  const page = await readMetrics()
  const grown = (name: string, labels: Readonly<Record<string, string>> = {}) =>
    (sampleValue(page, name, labels) ?? 0) - (sampleValue(before, name, labels) ?? 0)

  assert.equal(grown('penny_requests_total', { model, status: 'succeeded', stream: 'false' }), 1)
  assert.equal(grown('penny_requests_total', { model, status: 'succeeded', stream: 'true' }), 1)
  assert.equal(grown('penny_requests_total', { status: 'refused', code: 'invalid_value' }), 1)
  assert.equal(grown('penny_requests_total', { status: 'refused', code: 'invalid_api_key' }), 1)
  const sum = (read: (row: (typeof rows)[number]) => number) => rows.reduce((total, row) => total + read(row), 0)
  assert.equal(
    grown('penny_charged_micro_usdc_total', { model, component: 'inference' }),
    sum((row) => Number(row.charged_atomic)),
  )
  assert.equal(
    grown('penny_refunded_micro_usdc_total', { reason: 'unused' }),
    sum((row) => Number(row.refunded_atomic)),
  )
  assert.equal(
    grown('penny_tokens_total', { model, type: 'input' }),
    sum((row) => row.usage!.prompt_tokens),
  )
  assert.equal(
    grown('penny_tokens_total', { model, type: 'output' }),
    sum((row) => row.usage!.completion_tokens),
  )
  assert.equal(grown('penny_holds_total', { decision: 'held' }), 2)
  assert.equal(grown('penny_ends_total', { status: 'succeeded' }), 2)
  assert.equal(grown('penny_upstream_duration_seconds_count', { model, outcome: 'succeeded' }), 2)
  assert.equal(grown('penny_ttft_seconds_count', { model }), 2)
  assert.equal(grown('penny_ledger_wait_seconds_count', { phase: 'charge' }), 2)
  assert.equal(grown('penny_ledger_batch_size_sum', { operation: 'hold' }), 2)
  assert.equal(sampleValue(page, 'penny_in_flight_requests'), 0)
  assert.equal(sampleValue(page, 'penny_ledger_queue_depth', { operation: 'end' }), 0)
})

test('a search, a refusal, a void, a replay and a client that leaves are each counted as what they are', async () => {
  const account = await service.openAccount('1')
  const before = await readMetrics()
  const ask = (content: string, more: object = {}, init: RequestInit = {}) =>
    postChat(service, account.apiKey, { ...question, messages: [{ role: 'user', content }], ...more }, init)
  await (await ask('Search the web for pennies', { web_search: true, web_fetch: true })).json()
  assert.equal((await ask('[sandbox:error 500] Fail.')).status, 502)
  const poor = await service.openAccount('0')
  assert.equal((await postChat(service, poor.apiKey, question)).status, 402)
  for (let time = 0; time < 2; time += 1)
    await (await ask('Again?', {}, { headers: { 'idempotency-key': 'm' } })).json()
  const leaver = await service.openAccount('1')
  const call = callChat(service, leaver, {
    ...question,
    messages: [{ role: 'user', content: '[sandbox:stall-after 400] Go on.' }],
    stream: true,
  })
  await readContent(framesOf(await call.answer), 5)
  call.leave()
  await endedRow(service, leaver)

  const page = await readMetrics()
  const grown = (name: string, labels: Readonly<Record<string, string>> = {}) =>
    (sampleValue(page, name, labels) ?? 0) - (sampleValue(before, name, labels) ?? 0)
  assert.equal(grown('penny_tool_calls_total', { tool: 'web_search', status: 'completed' }), 1)
  assert.equal(grown('penny_tool_calls_total', { tool: 'web_fetch', status: 'completed' }), 1)
  assert.equal(grown('penny_charged_micro_usdc_total', { model, component: 'search' }), 8_750)
  assert.equal(grown('penny_ends_total', { status: 'failed', voided: 'true' }), 1)
  assert.equal(grown('penny_upstream_errors_total', { code: 'upstream_error' }), 1)
  assert.equal(grown('penny_holds_total', { decision: 'insufficient_balance' }), 1)
  assert.equal(grown('penny_requests_total', { status: 'refused', code: 'insufficient_balance' }), 1)
  assert.equal(grown('penny_replays_total'), 1)
  assert.equal(grown('penny_ends_total', { status: 'cancelled' }), 1)
  assert.equal(grown('penny_upstream_duration_seconds_count', { model, outcome: 'cancelled' }), 1)
})

test('a ledger that is off by seven units reports seven, and that it is frozen', async () => {
  const broken = await startTestService({ environment: { AUDIT_MS: '1000' } })
  const account = await broken.openAccount('1')
  await (await postChat(broken, account.apiKey, question)).json()
  await broken.database.query('update accounts set credit = credit + 7 where id = $1', [account.id])
  for (;;) {
    const page = await readMetrics(broken)
    if (sampleValue(page, 'penny_ledger_imbalance_micro_usdc', { scope: 'recent' }) !== 7) continue
    assert.ok(sampleValue(page, 'penny_ledger_violations', { scope: 'recent' })! > 0)
    break
  }
  // The answer is kept for a second, and the ledger is frozen after the metric is set.
  await until(async () => (await fetch(`${broken.origin}/readyz`)).status === 503)
  await broken.stop()
})

// Forty web machines would look over every account forty times an hour.
test('a machine that only serves audits the accounts in use, and leaves the whole ledger to those that settle', async () => {
  const web = await startTestService({ environment: { AUDIT_MS: '20', FULL_AUDIT_MS: '10' } })
  const audited = async (scope: string) =>
    sampleValue(await readMetrics(web), 'penny_ledger_audited_timestamp_seconds', { scope })
  const first = await audited('recent')
  for (let later = first; later === first || later === undefined; ) later = await audited('recent')
  assert.equal(await audited('all'), undefined)
  await web.stop()
})

test('docs/observability.md has every metric that is shown, and no other', async () => {
  const documented = readFileSync(new URL('../../docs/observability.md', import.meta.url), 'utf8')
  const [, table] = /<!-- metrics -->\n(.*)<!-- \/metrics -->/s.exec(documented)!
  assert.equal(table, metricsTable(await readMetrics()))
})

test('no account, no key and no word of a customer is a label', async () => {
  const account = await service.openAccount('1')
  const secret = 'xyzzy-plover'
  await (await postChat(service, account.apiKey, { ...question, model: secret })).json()
  await (
    await postChat(service, account.apiKey, { messages: [{ role: 'user', content: secret }], user: secret })
  ).json()
  const text = await (await fetch(`${service.origin}/metrics`)).text()
  for (const word of [secret, account.id, account.keyId, account.apiKey]) assert.ok(!text.includes(word))
})

test('only the exact path has the page: proxies deny that path to the public', async () => {
  assert.equal((await fetch(`${service.origin}/metrics?from=prometheus`)).status, 200)
  for (const path of ['/metrics/', '//metrics', '/%6detrics', '/./metrics/', '/METRICS', '/v1/..//metrics']) {
    const { port } = new URL(service.origin)
    const outgoing = request({ host: '127.0.0.1', port, path, agent: false }).end()
    const [response] = (await once(outgoing, 'response')) as [IncomingMessage]
    assert.equal(response.statusCode, 404, path)
    response.destroy()
  }
})

test('with METRICS_TOKEN set, the page needs it as bearer token', async () => {
  const guarded = await startTestService({ besideOf: service, environment: { METRICS_TOKEN: 'let-me-in' } })
  const read = (authorization?: string) =>
    fetch(`${guarded.origin}/metrics`, authorization === undefined ? {} : { headers: { authorization } })
  assert.equal((await read()).status, 401)
  assert.equal((await read('Bearer let-me-out')).status, 401)
  const letIn = await read('Bearer let-me-in')
  assert.equal(letIn.status, 200)
  parseMetrics(await letIn.text())
  assert.equal((await fetch(`${guarded.origin}/metrics`, { method: 'POST' })).status, 405)
  await guarded.stop()
})

/** The table of `docs/observability.md`, of what a service shows. */
function metricsTable(metrics: ReadonlyMap<string, ParsedMetric>): string {
  const rows = [...metrics.values()]
    .map(({ name, type, help }) => `| \`${name}\` | ${type} | ${help} |\n`)
    .toSorted()
    .join('')
  return `| metric | type | what |\n|---|---|---|\n${rows}`
}
