import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import {
  answers,
  completed,
  created,
  modelRequest as request,
  type ScriptedUpstream,
  startScriptedUpstream,
  text,
} from '../../test/support/scripted-upstream.ts'
import { until } from '../../test/support/until.ts'
import { ServiceError } from '../errors.ts'
import type { ModelRequest } from './model-request.ts'
import { Router } from './router.ts'
import type { ProviderSettings, Route, RoutingTable } from './routes.ts'

const good = answers(created, text('Hi'), completed())
const status = (code: number, headers = {}): ScriptedUpstream['answer'] =>
  function refuse({ outgoing }) {
    outgoing.writeHead(code, headers).end('{"error":{"message":"no"}}')
  }

/** A clock that stands still until it is moved; moving it runs what is due. */
function fakeClock() {
  let nowMs = 1_000
  let timers: { readonly atMs: number; readonly run: () => void }[] = []
  return {
    now: () => nowMs,
    schedule(milliseconds: number, run: () => void) {
      const timer = { atMs: nowMs + milliseconds, run }
      timers.push(timer)
      return () => {
        timers = timers.filter((other) => other !== timer)
      }
    },
    advance(milliseconds: number) {
      nowMs += milliseconds
      const due = timers.filter(({ atMs }) => atMs <= nowMs)
      timers = timers.filter(({ atMs }) => atMs > nowMs)
      for (const { run } of due) run()
    },
  }
}

function settingsOf(id: string, { url }: ScriptedUpstream, more: Partial<ProviderSettings> = {}): ProviderSettings {
  return {
    id,
    protocol: 'responses',
    baseUrl: url,
    apiKey: undefined,
    headers: {},
    // On the real clock, and no test here is about them: a first answer has taken 0.7 s on a busy machine.
    timeouts: { connectMs: 60_000, firstByteMs: 60_000, idleMs: 60_000, totalMs: 60_000 },
    slowMs: undefined,
    concurrencyMax: 100,
    concurrencyPerAccountMin: 4,
    ...more,
  }
}

const route = (provider: string, priority = 0, weight = 1): Route => ({
  provider,
  model: 'm',
  priority,
  weight,
  rates: undefined,
})

async function startPair(
  t: TestContext,
  more: Partial<ProviderSettings> = {},
  routes = [route('a', 0), route('b', 1)],
) {
  const [a, b] = await Promise.all([startScriptedUpstream(good), startScriptedUpstream(good)])
  const table: RoutingTable = {
    providers: [settingsOf('a', a, more), settingsOf('b', b, more)],
    routes: new Map([['m', routes]]),
    deadlineMs: 5_000,
  }
  const clock = fakeClock()
  const failures: string[] = []
  const onFailure = ({ provider }: Route, error: ServiceError) => void failures.push(`${provider} ${error.code}`)
  const router = new Router({ table, clock, onFailure })
  atEnd(t, async () => {
    await router.close()
    await Promise.all([a.close(), b.close()])
  })
  return { a, b, table, clock, failures, router }
}

let accounts = 0

/** Asks once, for an account of its own; returns who answered, or the code of the error. */
async function ask(
  router: Router,
  more: Partial<ModelRequest> = {},
  account = `account ${(accounts += 1)}`,
): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  const answer = router.ask({
    model: 'm',
    request: { ...request, ...more },
    account,
    sink: {
      onAccepted() {},
      onEvents(events) {
        const end = events.at(-1)?.type
        if (end === 'finish' || end === 'failed') resolve(end)
        return undefined
      },
      onRefused: reject,
    },
    onAttempt: () => ({ headers: undefined, failed: () => {} }),
  })
  try {
    const end = await promise
    return end === 'finish' ? answer.route.provider : end
  } catch (error) {
    assert.ok(error instanceof ServiceError, String(error))
    return error.code
  }
}

const stateOf = (router: Router, id: string) => router.health.find(({ provider }) => provider === id)?.state

test('a failing provider is tried three times and then skipped until it recovers', async (t) => {
  const { a, clock, router, failures } = await startPair(t)
  a.answer = status(500)
  for (let count = 0; count < 10; count += 1) assert.equal(await ask(router), 'b')
  assert.equal(a.exchanges.length, 3)
  assert.deepEqual(failures, ['a upstream_error', 'a upstream_error', 'a upstream_error'])
  a.probeStatus = 500
  clock.advance(1_000)
  await until(async () => stateOf(router, 'a') === 'open')
  assert.equal(await ask(router), 'b', 'the probe failed: no customer is sent there')
  a.probeStatus = 200
  a.answer = good
  await until(async () => {
    clock.advance(30_000)
    return stateOf(router, 'a') === 'half-open'
  })
  assert.equal(await ask(router), 'a')
  assert.equal(stateOf(router, 'a'), 'closed')
  for (let count = 0; count < 5; count += 1) assert.equal(await ask(router), 'a')
})

test('a restart resets the circuit breakers', async (t) => {
  const { a, table, clock, router } = await startPair(t)
  a.answer = status(500)
  for (let count = 0; count < 4; count += 1) await ask(router)
  assert.equal(stateOf(router, 'a'), 'open')
  const restarted = new Router({ table, clock, onFailure: () => {} })
  atEnd(t, () => restarted.close())
  assert.equal(stateOf(restarted, 'a'), 'closed')
})

test('a burst of 429 does not overload the other provider: each request reaches it once, and never more than its limit', async (t) => {
  const { a, b, router } = await startPair(t, { concurrencyMax: 10 })
  a.answer = status(429, { 'retry-after': '30' })
  let most = 0
  let open = 0
  b.answer = async (exchange) => {
    open += 1
    most = Math.max(most, open)
    await new Promise((resolve) => setImmediate(resolve))
    open -= 1
    await good(exchange)
  }
  assert.equal(await ask(router), 'b')
  assert.equal(a.exchanges.length, 1)
  const served = []
  for (let round = 0; round < 20; round += 1) {
    served.push(...(await Promise.all(Array.from({ length: 10 }, () => ask(router)))))
  }
  assert.deepEqual([...new Set(served)], ['b'])
  assert.equal(a.exchanges.length, 1, 'not asked before its Retry-After')
  assert.equal(b.exchanges.length, 201, 'no request twice')
  assert.ok(most <= 10, `${most} at once`)
  assert.equal(stateOf(router, 'b'), 'closed')
})

test('a rate limit on one model does not affect the provider’s other models', async (t) => {
  const { a, table, router } = await startPair(t)
  const other = { ...route('a'), model: 'other' }
  router.use({ ...table, routes: new Map([...table.routes, ['other', [other]]]) })
  a.answer = status(429, { 'retry-after': '30' })
  assert.equal(await ask(router), 'b')
  assert.deepEqual(router.health[0]?.modelsOut, ['m'])
  assert.equal(router.health[0]?.state, 'closed')
})

test('a provider that does not know the model answers 400: the next one is tried, and its other models stay in', async (t) => {
  const { a, router } = await startPair(t)
  const error = { code: 'model_not_found', param: 'model', message: "The requested model 'm' does not exist." }
  a.answer = ({ outgoing }) => void outgoing.writeHead(400).end(JSON.stringify({ error }))
  for (let count = 0; count < 5; count += 1) assert.equal(await ask(router), 'b')
  assert.deepEqual([stateOf(router, 'a'), router.health[0]?.modelsOut, a.exchanges.length], ['closed', ['m'], 3])
})

test('input that a provider flags is refused, and three such requests take nothing out', async (t) => {
  const { a, b, router } = await startPair(t)
  const error = { code: 403, message: 'Your input was flagged.', metadata: { reasons: ['violence'] } }
  a.answer = ({ outgoing }) => void outgoing.writeHead(403).end(JSON.stringify({ error }))
  for (let count = 0; count < 3; count += 1) assert.equal(await ask(router), 'invalid_value')
  a.answer = good
  assert.equal(await ask(router), 'a')
  assert.deepEqual([stateOf(router, 'a'), b.exchanges.length], ['closed', 0])
})

test('a provider whose credit is used up is taken out, also if it says so with 400', async (t) => {
  const { a, router } = await startPair(t)
  const error = { type: 'invalid_request_error', message: 'Your credit balance is too low to access the API.' }
  a.answer = ({ outgoing }) => void outgoing.writeHead(400).end(JSON.stringify({ error }))
  for (let count = 0; count < 5; count += 1) assert.equal(await ask(router), 'b')
  assert.deepEqual([stateOf(router, 'a'), a.exchanges.length], ['open', 3])
})

test('when all providers are out, one is tried anyway', async (t) => {
  const { a, b, router } = await startPair(t)
  a.answer = status(500)
  b.answer = status(503)
  for (let count = 0; count < 5; count += 1) assert.equal(await ask(router), 'upstream_error')
  assert.deepEqual([stateOf(router, 'a'), stateOf(router, 'b')], ['open', 'open'])
  b.answer = good
  assert.equal(await ask(router), 'b')
})

test('when a provider is full the next one is used; when all are full the request is refused and no breaker counts it', async (t) => {
  const { a, b, router } = await startPair(t, { concurrencyMax: 1 })
  const waiting: (() => void)[] = []
  const wait: ScriptedUpstream['answer'] = (exchange) => void waiting.push(() => void good(exchange))
  a.answer = wait
  b.answer = wait
  const first = ask(router)
  await until(async () => a.exchanges.length === 1)
  const second = ask(router)
  await until(async () => b.exchanges.length === 1)
  assert.equal(await ask(router), 'overloaded')
  for (const go of waiting) go()
  assert.deepEqual([await first, await second], ['a', 'b'])
  assert.deepEqual([stateOf(router, 'a'), stateOf(router, 'b')], ['closed', 'closed'])
})

test('one account cannot occupy a provider: others get in, and rounds of requests that began go on', async (t) => {
  const { a, router } = await startPair(t, { concurrencyMax: 16 }, [route('a')])
  const waiting: (() => void)[] = []
  a.answer = (exchange) => void waiting.push(() => void good(exchange))
  const greedy = Array.from({ length: 8 }, () => ask(router, {}, 'greedy'))
  await until(async () => waiting.length === 4)
  assert.equal(router.refusal('m', 'greedy')?.code, 'rate_limited')
  assert.equal(router.refusal('m', 'other'), undefined)
  const turn = { provider: 'a', items: [], unlistedCalls: [], text: 'Hm.', calls: [], results: [] }
  const served = [ask(router, {}, 'other'), ask(router, { turns: [turn] }, 'greedy')]
  await until(async () => waiting.length === 6)
  for (const go of waiting) go()
  assert.deepEqual(await Promise.all(served), ['a', 'a'])
  const outcomes = await Promise.all(greedy)
  assert.deepEqual(outcomes.toSorted(), [...Array(4).fill('a'), ...Array(4).fill('rate_limited')])
  assert.deepEqual([stateOf(router, 'a'), router.health[0]?.failed], ['closed', 0])
})

test('a request is shared out by its prompt cache key, and its later rounds stay where they began', async (t) => {
  const { router } = await startPair(t, {}, [route('a'), route('b')])
  const keys = Array.from({ length: 30 }, (_, index) => `key-${index}`)
  const firsts = []
  for (const promptCacheKey of keys) {
    const first = await ask(router, { promptCacheKey })
    firsts.push(first)
    assert.equal(await ask(router, { promptCacheKey }), first)
  }
  assert.deepEqual([...new Set(firsts)].sort(), ['a', 'b'])
  for (const provider of ['a', 'b']) {
    const turn = { provider, items: [], unlistedCalls: [], text: 'Hm.', calls: [], results: [] }
    for (const promptCacheKey of keys.slice(0, 5)) {
      assert.equal(await ask(router, { promptCacheKey, turns: [turn] }), provider)
    }
  }
})

test('slow answers are delivered, but a provider that is always slow is no longer used', async (t) => {
  const { a, clock, router } = await startPair(t, { slowMs: 100 })
  a.answer = (exchange) => {
    clock.advance(200)
    return good(exchange)
  }
  const served = []
  for (let count = 0; count < 5; count += 1) served.push(await ask(router))
  assert.deepEqual(served, ['a', 'a', 'a', 'b', 'b'])
})

test('one customer’s slow prompts move neither others nor, with high effort or long input, themselves', async (t) => {
  const { a, clock, router } = await startPair(t, { slowMs: 100 })
  let lateMs = 0
  a.answer = (exchange) => {
    clock.advance(lateMs)
    return good(exchange)
  }
  const honest = []
  for (let count = 0; count < 10; count += 1) {
    lateMs = 0
    honest.push(await ask(router, {}, 'honest'))
    lateMs = 200
    for (let slow = 0; slow < 4; slow += 1) await ask(router, {}, 'hostile')
  }
  assert.deepEqual([...new Set(honest)], ['a'])
  const longInput = { messages: [{ role: 'user', content: 'word '.repeat(25_000) }] } as const
  for (const more of [{ reasoningEffort: 'high' }, longInput] as const)
    for (let count = 0; count < 4; count += 1) assert.equal(await ask(router, more), 'a')
  assert.equal(stateOf(router, 'a'), 'closed')
})

test('after the deadline there is no further attempt', async (t) => {
  const { a, b, clock, router } = await startPair(t)
  a.answer = (exchange) => {
    clock.advance(5_000)
    return status(500)(exchange)
  }
  assert.equal(await ask(router), 'upstream_error')
  assert.equal(b.exchanges.length, 0)
})

test('new routes take effect for the next request; those under way end where they began, and health is kept', async (t) => {
  const { a, b, table, router } = await startPair(t)
  let release = () => {}
  b.answer = (exchange) => {
    exchange.send(created, text('Hi'))
    release = () => {
      exchange.send(completed())
      exchange.end()
    }
  }
  a.answer = status(500)
  const underWay = ask(router)
  await until(async () => b.exchanges.length === 1)
  const [settingsOfA] = table.providers
  router.use({ ...table, providers: [settingsOfA!], routes: new Map([['m', [route('a')]]]) })
  a.answer = good
  assert.equal(await ask(router), 'a')
  release()
  assert.equal(await underWay, 'b')
  assert.deepEqual(
    router.health.map(({ provider, lastFailure }) => [provider, lastFailure?.code]),
    [['a', 'upstream_error']],
  )
})

test('a request under way fails over to a provider as it is after a reload', async (t) => {
  const { a, b, table, router } = await startPair(t)
  let fail = () => {}
  a.answer = ({ outgoing }) => {
    fail = () => void outgoing.writeHead(500).end()
  }
  const underWay = ask(router)
  await until(async () => a.exchanges.length === 1)
  const [settingsOfA, settingsOfB] = table.providers
  const headers = { 'x-key': 'new' }
  router.use({ ...table, providers: [settingsOfA!, { ...settingsOfB!, headers }] })
  fail()
  assert.equal(await underWay, 'b')
  assert.equal(b.exchanges.at(-1)?.incoming.headers['x-key'], 'new')
})

test('a stale kept-alive connection is not a failure: the same provider is tried on a new one', async (t) => {
  const { a, b, router } = await startPair(t, { concurrencyMax: 1 })
  assert.equal(await ask(router), 'a')
  await until(async () => router.health[0]?.requestsUnderWay === 0)
  let stale = true
  a.answer = (exchange) => {
    if (stale) exchange.outgoing.destroy()
    else good(exchange)
    stale = false
  }
  assert.equal(await ask(router), 'a')
  const [health] = router.health
  assert.deepEqual([a.exchanges.length, b.exchanges.length, health?.failed], [3, 0, 0])
  assert.ok(health?.firstByteMs !== undefined)
})

test('a provider that refuses connections is not tried again while another one can answer', async (t) => {
  const { b, table, router } = await startPair(t)
  const [settingsOfA, settingsOfB] = table.providers
  router.use({ ...table, providers: [{ ...settingsOfA!, baseUrl: 'http://127.0.0.1:1/v1' }, settingsOfB!] })
  assert.equal(await ask(router), 'b')
  assert.deepEqual([b.exchanges.length, router.health[0]?.failed], [1, 1])
})
