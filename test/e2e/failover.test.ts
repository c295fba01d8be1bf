import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { readConfig } from '../../src/config/config.ts'
import { checkProviders } from '../../src/doctor/outside.ts'
import { askControl } from '../../src/run/control.ts'
import { assertBooksClosed } from '../support/audit.ts'
import { createWallet, DashboardClient, type Json, signedMessage } from '../support/dashboard-client.ts'
import { exampleCount, seedOf } from '../support/examples.ts'
import { parseMetrics, sampleValue } from '../support/prometheus.ts'
import {
  answers,
  completed,
  created,
  failedEvent,
  functionCall,
  type ScriptedUpstream,
  startScriptedUpstream,
  text,
} from '../support/scripted-upstream.ts'
import { startScriptedWeb } from '../support/scripted-web.ts'
import { getRow, postChat, startTestService, type TestService, withoutTools } from '../support/service.ts'
import { until } from '../support/until.ts'

// Two providers of one model: the first speaks the Responses API, the second chat completions. Prices: 1 atomic unit for a token of
// input, 5 for one of output.

const folder = mkdtempSync(join(tmpdir(), 'penny-failover-'))
const web = startScriptedWeb()
let first: ScriptedUpstream
let second: ScriptedUpstream
let service: TestService
let apiKey: string
let content: { readonly providers: Json; readonly models: readonly Json[] }
const file = join(folder, 'providers.json')
const operator = createWallet()
const metricsToken = 'for-prometheus-only-0123456789'

before(async () => {
  first = await startScriptedUpstream()
  second = await startScriptedUpstream()
  const model = { id: 'm', input_per_million: '1', output_per_million: '5', max_output_tokens: 1_000 }
  // Long enough that a good provider is in time on a busy machine.
  const limits = { api_key: null, first_byte_ms: 2_000, idle_ms: 2_000 }
  content = {
    providers: {
      'secret-first': { protocol: 'responses', base_url: first.url, ...limits, headers: { 'x-team': 'first' } },
      'secret-second': { protocol: 'chat-completions', base_url: second.url, ...limits },
    },
    models: [
      {
        ...model,
        upstreams: [
          { provider: 'secret-first', model: 'first-model' },
          {
            provider: 'secret-second',
            model: 'second-model',
            priority: 1,
            input_cost_per_million: '0.2',
            output_cost_per_million: '6',
          },
        ],
      },
      { ...model, id: 'shared', upstreams: [{ provider: 'secret-first' }, { provider: 'secret-second' }] },
    ],
  }
  writeFileSync(file, JSON.stringify(content))
  service = await startTestService({
    environment: {
      UPSTREAM_BASE_URL: '',
      PROVIDERS_FILE: file,
      DATA_DIR: folder,
      OPERATORS: operator.address,
      METRICS_TOKEN: metricsToken,
    },
    web: web.tools,
  })
  ;({ apiKey } = await service.openAccount('25'))
})

after(async () => {
  try {
    await assertBooksClosed(service.database)
  } finally {
    await service.stop()
    await Promise.all([first.close(), second.close()])
    rmSync(folder, { recursive: true })
  }
})

const good = answers(created, text('From the first.'), completed())
const chunk = (delta: object, finish_reason: string | null = null) => ({
  choices: [{ index: 0, delta, finish_reason }],
})

/** Writes chunks as a server of chat completions does. */
function sends(...chunks: readonly object[]): ScriptedUpstream['answer'] {
  return ({ outgoing }) => {
    outgoing.writeHead(200, { 'content-type': 'text/event-stream' })
    for (const content of chunks) outgoing.write(`data: ${JSON.stringify(content)}\n\n`)
    outgoing.end('data: [DONE]\n\n')
  }
}

const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 }
const goodSecond = sends(chunk({ role: 'assistant' }), chunk({ content: 'From the second.' }, 'stop'), {
  choices: [],
  usage,
})

async function ask(body: object = {}) {
  const asked = [first.exchanges.length, second.exchanges.length] as const
  const response = await postChat(service, apiKey, {
    model: 'm',
    messages: [{ role: 'user', content: 'Hi' }],
    ...withoutTools,
    ...body,
  })
  const content = await response.text()
  const row = await getRow(service, apiKey, response)
  const attempts = [first.exchanges.length - asked[0], second.exchanges.length - asked[1]]
  assert.doesNotMatch(`${content}${JSON.stringify([...response.headers])}${JSON.stringify(row)}`, /secret|-model/)
  return { status: response.status, content, row, attempts }
}

const refuses = (code: number, headers = {}, body = '{"error":{"message":"no"}}'): ScriptedUpstream['answer'] =>
  function refuse({ outgoing }) {
    outgoing.writeHead(code, headers).end(body)
  }

const faults: Readonly<Record<string, ScriptedUpstream['answer']>> = {
  'is killed': ({ outgoing }) => void outgoing.destroy(),
  'answers 500': refuses(500),
  'answers 429': refuses(429, { 'retry-after': '0' }),
  'has lost its key': refuses(401),
  'does not know the model': refuses(404),
  'has no quota left': refuses(429, {}, '{"error":{"code":"insufficient_quota","message":"Pay."}}'),
  'answers garbage': refuses(200, { 'content-type': 'application/json' }, '{"hello":'),
  'streams garbage': refuses(200, { 'content-type': 'text/event-stream' }, 'data: }{\n\ndata: nothing\n\n'),
  'ends without a word': refuses(200, { 'content-type': 'text/event-stream' }, ''),
  'accepts and fails': answers(created, failedEvent()),
  'accepts and is killed': (exchange) => {
    exchange.send(created)
    setImmediate(() => exchange.outgoing.destroy())
  },
  hangs: () => {},
  'accepts and hangs': (exchange) => exchange.send(created),
}

for (const [name, fault] of Object.entries(faults)) {
  test(`a provider that ${name} before output is not noticed: the other answers, and one answer is charged`, async () => {
    second.answer = goodSecond
    for (const stream of [false, true]) {
      first.answer = fault
      const { status, content, row, attempts } = await ask({ stream })
      assert.equal(status, 200, content)
      assert.match(content, /From the second\./)
      assert.doesNotMatch(content, /error/)
      // A connection that breaks without an answer may have been stale: it is tried once more on a new one.
      const asked = name === 'is killed' ? [Math.min(attempts[0]!, 1), attempts[1]] : attempts
      assert.deepEqual(asked, [1, 1], 'each was asked once')
      assert.deepEqual([row.status, row.charged_atomic, row.usage?.source], ['succeeded', '35', 'upstream'])
      // Successes between the faults keep the circuit breaker closed.
      first.answer = good
      for (let count = 0; count < 2; count += 1) assert.deepEqual((await ask()).attempts, [1, 0])
    }
  })
}

test('the provider gets its own model name, headers and protocol', async () => {
  first.answer = refuses(500)
  second.answer = goodSecond
  await ask()
  const [one, other] = [first.exchanges.at(-1)!, second.exchanges.at(-1)!]
  assert.deepEqual(
    [one.body.model, one.incoming.url, one.incoming.headers['x-team']],
    ['first-model', '/v1/responses', 'first'],
  )
  assert.deepEqual([other.body.model, other.incoming.url], ['second-model', '/v1/chat/completions'])
})

test('after output there is no second attempt: what was written is charged, and the stream says that it broke', async () => {
  first.answer = answers(created, text('Hi'), failedEvent())
  const { content, row, attempts } = await ask({ stream: true })
  assert.deepEqual(attempts, [1, 0])
  assert.match(content, /"error":\{/)
  assert.deepEqual([row.status, row.usage?.source], ['failed', 'counted'])
  first.answer = good
  await ask()
})

test('a request that the provider refuses as invalid is refused: no other provider is tried', async () => {
  const wrong = '{"error":{"code":"invalid_value","message":"Too hot.","param":"temperature"}}'
  first.answer = refuses(400, {}, wrong)
  const { status, content, attempts } = await ask()
  assert.deepEqual([status, attempts], [400, [1, 0]])
  assert.match(content, /Too hot/)
  first.answer = good
  await ask()
})

test('when both fail the customer gets one error and pays nothing', async () => {
  first.answer = refuses(500)
  second.answer = refuses(429, { 'retry-after': '0' })
  const { status, row, attempts } = await ask()
  assert.deepEqual([status, attempts], [503, [1, 1]])
  assert.deepEqual([row.status, row.charged_atomic, row.error?.code], ['failed', '0', 'overloaded'])
  first.answer = good
  second.answer = goodSecond
  await ask()
})

test('the rounds of a request go to one provider', async () => {
  const round = (body: { input?: object[]; messages?: object[] }) =>
    JSON.stringify(body.input ?? body.messages).includes('call_0') ? 2 : 1
  const call = {
    index: 0,
    id: 'call_0',
    type: 'function',
    function: { name: 'web_search', arguments: '{"query":"p"}' },
  }
  first.answer = (exchange) =>
    round(exchange.body) === 2
      ? good(exchange)
      : answers(created, ...functionCall('web_search', { query: 'p' }), completed())(exchange)
  second.answer = (exchange) =>
    round(exchange.body) === 2
      ? goodSecond(exchange)
      : sends(chunk({ tool_calls: [call] }, 'tool_calls'), { choices: [], usage })(exchange)
  const served = []
  for (let count = 0; count < 12; count += 1) {
    const { row, attempts } = await ask({ model: 'shared', web_search: true })
    assert.deepEqual([row.status, row.cost.search_calls], ['succeeded', 1])
    served.push(attempts.join())
  }
  assert.deepEqual([...new Set(served)].sort(), ['0,2', '2,0'])
})

async function upstreamOf(row: { readonly id: string }) {
  const [stored] = await service.database.query<Json>(
    'select provider, attempts, upstream_cost from requests where id = $1',
    [row.id.replace(/^req_/, '')],
  )
  return [stored.provider, stored.attempts, stored.upstream_cost]
}

test('the row, the metrics and the operator’s page show provider, attempts, cost and margin', async () => {
  const client = new DashboardClient(service)
  await client.post('/api/auth/wallet', await signedMessage(client, operator))
  const read = async () => {
    const [revenue, page] = await Promise.all([
      client.get('/api/operator/revenue?days=2'),
      fetch(`${service.origin}/metrics`, { headers: { authorization: `Bearer ${metricsToken}` } }),
    ])
    const find = (provider: string) =>
      revenue.providers.find((one: Json) => one.provider === provider && one.model === 'm')
    return { first: find('secret-first'), second: find('secret-second'), metrics: parseMetrics(await page.text()) }
  }
  first.answer = refuses(500)
  second.answer = goodSecond
  const before = await read()
  const failedOver = await ask()
  first.answer = good
  const direct = await ask()
  // Ten tokens at 0.2 and five at 6, rounded up once.
  assert.deepEqual(await upstreamOf(failedOver.row), ['secret-second', 2, 32n])
  assert.deepEqual(await upstreamOf(direct.row), ['secret-first', 1, null])

  const now = await read()
  const grown = (name: keyof typeof now & ('first' | 'second'), field: string) =>
    Number(now[name][field]) - Number(before[name]?.[field] ?? 0)
  assert.deepEqual(
    ['requests', 'attempts', 'charged_atomic', 'upstream_cost_atomic', 'margin_atomic'].map((f) => grown('second', f)),
    [1, 2, 35, 32, 3],
  )
  assert.deepEqual([now.first.upstream_cost, now.first.margin], [null, null])
  const { parts } = await client.get('/api/operator/health')
  const part = parts.find(({ name }: Json) => name === 'Provider secret-first')
  assert.equal(part.state, 'working')
  assert.match(
    part.detail,
    /^Circuit breaker closed; \d+ of \d+ attempts succeeded; first byte after \d+ ms; last error \d+ s ago: .*500/,
  )
  const counted = (name: string, labels: Readonly<Record<string, string>>) =>
    (sampleValue(now.metrics, name, labels) ?? 0) - (sampleValue(before.metrics, name, labels) ?? 0)
  const by = (provider: string, outcome: string) =>
    counted('penny_provider_attempts_total', { provider, model: 'm', outcome })
  assert.deepEqual(
    [by('secret-first', 'failed'), by('secret-first', 'succeeded'), by('secret-second', 'succeeded')],
    [1, 1, 1],
  )
  assert.equal(counted('penny_provider_cost_micro_usdc_total', { provider: 'secret-second', model: 'm' }), 32)
  assert.equal(counted('penny_provider_charged_micro_usdc_total', { provider: 'secret-second', model: 'm' }), 35)
  assert.equal(sampleValue(now.metrics, 'penny_provider_breaker_state', { provider: 'secret-second' }), 0)
})

const reload = () => askControl(folder, 'POST', '/providers/reload')

test('providers are reloaded without a restart, and a wrong file keeps the former ones', async () => {
  let release = () => {}
  first.answer = (exchange) => {
    exchange.send(created, text('From the first.'))
    release = () => {
      exchange.send(completed())
      exchange.end()
    }
  }
  second.answer = goodSecond
  const before = first.exchanges.length
  const underWay = ask({ stream: true })
  await until(async () => first.exchanges.length > before)
  const [m, shared] = content.models as [Json, Json]
  const toSecond = { ...m, upstreams: m.upstreams.slice(1) }
  writeFileSync(file, JSON.stringify({ ...content, models: [toSecond, shared] }))
  const { providers, warnings } = await reload()
  assert.deepEqual(
    providers.map(({ provider, state }) => [provider, state]),
    [
      ['secret-first', 'closed'],
      ['secret-second', 'closed'],
    ],
  )
  assert.match(warnings!.join(), /m sells output for 5 USDC per million tokens; secret-second charges 6\./)
  assert.match((await ask()).content, /From the second/)
  release()
  assert.match((await underWay).content, /From the first/)

  const wrong: readonly [unknown, RegExp][] = [
    [{ ...content, providers: {} }, /^PROVIDERS_FILE cannot be used: .*providers/],
    [{ ...content, models: [{ ...toSecond, output_per_million: '9' }, shared] }, /prices or limits have changed/],
  ]
  for (const [next, message] of wrong) {
    writeFileSync(file, JSON.stringify(next))
    await assert.rejects(reload(), { message })
    assert.match((await ask()).content, /From the second/)
  }
  writeFileSync(file, JSON.stringify(content))
  await reload()
  first.answer = good
  assert.match((await ask()).content, /From the first/)
})

test('requests are answered while providers are replaced, by several reloads at the same time', async () => {
  first.answer = good
  second.answer = goodSecond
  const { providers } = content
  let isOver = false
  const worker = async () => {
    while (!isOver) {
      const response = await postChat(service, apiKey, {
        model: 'm',
        messages: [{ role: 'user', content: 'Hi' }],
        ...withoutTools,
      })
      assert.equal(response.status, 200, await response.text())
    }
  }
  const workers = Promise.all(Array.from({ length: 4 }, worker))
  try {
    for (let round = 0; round < 20; round += 1) {
      // Other settings: each provider is replaced, and the one before is retired with requests under way.
      const changed = Object.entries<Json>(providers).map(([id, provider]) => [
        id,
        { ...provider, idle_ms: 3_000 + round },
      ])
      writeFileSync(file, JSON.stringify({ ...content, providers: Object.fromEntries(changed) }))
      await Promise.all([reload(), reload()])
    }
  } finally {
    isOver = true
    await workers
    writeFileSync(file, JSON.stringify(content))
    await reload()
  }
})

test('commands of another user, or with another token, are refused', async () => {
  const { url, token } = JSON.parse(readFileSync(join(folder, 'control.json'), 'utf8'))
  assert.equal(statSync(join(folder, 'control.json')).mode & 0o777, 0o600)
  for (const authorization of ['', `Bearer ${token}x`]) {
    const answer = await fetch(`${url}/providers`, { headers: { authorization } })
    assert.equal(answer.status, 401)
  }
  assert.equal((await fetch(`${service.origin}/providers/reload`, { method: 'POST' })).status, 404)
})

test('penny doctor asks each provider whether it answers, accepts the key and knows the models', async () => {
  const config = readConfig({ DATA_DIR: folder, PROVIDERS_FILE: file })
  const check = async () =>
    (await checkProviders(config)).map(({ check: name, state, detail }) => `${name} ${state} ${detail}`)
  first.models = ['first-model', 'shared:latest']
  second.models = ['shared']
  const [one, other] = await check()
  assert.match(one!, /^provider secret-first ok /)
  assert.match(other!, /^provider secret-second warning .* does not list second-model\.$/)
  first.probeStatus = 401
  second.probeStatus = 500
  const [unlocked, broken] = await check()
  assert.match(unlocked!, /failed .* requires a key, and providers\.secret-first\.api_key is not set\.$/)
  assert.match(broken!, /warning .* answers 500\.$/)
  first.probeStatus = 200
  second.probeStatus = 200
})

// FAILOVER_REQUESTS=10000 FAILOVER_SEED=7 node test/run.ts test/e2e/failover.test.ts for the long form.
const requests = exampleCount('FAILOVER_REQUESTS', { short: 50, full: 100, all: 500 })
const seed = seedOf('FAILOVER_SEED')

test(`of ${requests} requests to two providers that fail at random, each is answered and charged once (seed ${seed})`, async (context) => {
  // A hang takes its two seconds, so few of them are drawn.
  const quick = Object.keys(faults).filter((name) => !name.includes('hangs'))
  const draw = dice(seed)
  const faultOf = new Map<string, { readonly at: ScriptedUpstream; readonly fault: ScriptedUpstream['answer'] }>()
  const drawn: Record<string, number> = {}
  for (let number = 0; number < requests; number += 1) {
    if (draw() < 0.5) continue
    const name = draw() < 0.01 ? 'hangs' : quick[Math.floor(draw() * quick.length)]!
    drawn[name] = (drawn[name] ?? 0) + 1
    faultOf.set(`Request ${number}.`, { at: draw() < 0.5 ? first : second, fault: faults[name]! })
  }
  const scripted =
    (upstream: ScriptedUpstream, right: ScriptedUpstream['answer']): ScriptedUpstream['answer'] =>
    (exchange) => {
      const [marker] = /Request \d+\./.exec(JSON.stringify(exchange.body)) ?? []
      const planned = faultOf.get(marker ?? '')
      return planned?.at === upstream ? planned.fault(exchange) : right(exchange)
    }
  first.answer = scripted(first, good)
  second.answer = scripted(second, goodSecond)
  const account = await service.openAccount('100')
  let next = 0
  const worker = async () => {
    for (let number = next++; number < requests; number = next++) {
      const response = await postChat(service, account.apiKey, {
        model: 'shared',
        messages: [{ role: 'user', content: `Request ${number}.` }],
        stream: number % 2 === 0,
        // Spreads the requests over both providers.
        prompt_cache_key: String(number),
        ...withoutTools,
      })
      const content = await response.text()
      assert.equal(response.status, 200, content)
      assert.match(content, /From the (first|second)\./)
      assert.doesNotMatch(content, /"error"/)
    }
  }
  await Promise.all(Array.from({ length: 8 }, worker))
  const rows = await service.database.query<Json>(
    `select status, charged, provider, count(*)::int as count, sum(attempts)::int as attempts
       from requests where account_id = $1 group by status, charged, provider order by provider`,
    [account.id],
  )
  assert.deepEqual(
    rows.map(({ status, charged, provider }) => [status, charged, provider]),
    [
      ['succeeded', 35n, 'secret-first'],
      ['succeeded', 35n, 'secret-second'],
    ],
  )
  const total = (field: string) => rows.reduce((sum, row) => sum + row[field], 0)
  assert.equal(total('count'), requests)
  assert.ok(total('attempts') > requests, 'nothing failed over')
  context.diagnostic(`${total('attempts')} attempts; faults drawn: ${JSON.stringify(drawn)}`)
})

/** Numbers from 0 to 1 that follow from the seed. */
function dice(state: number): () => number {
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}
