import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as pause, setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base'
import { assertBooksClosed } from '../support/audit.ts'
import { callChat, endedRows, framesOf } from '../support/chat-client.ts'
import { exampleCount } from '../support/examples.ts'
import {
  completed,
  created,
  functionCall,
  type ScriptedUpstream,
  startScriptedUpstream,
  text,
  type UpstreamExchange,
} from '../support/scripted-upstream.ts'
import { pennyResult, startScriptedWeb } from '../support/scripted-web.ts'
import { type RequestBody, startTestService, type TestAccount, type TestService } from '../support/service.ts'

// What providers do for an account and nobody pays, at list price: bounded per hour as docs/operations/charge.md says, over three nodes.
// Customers cancel at any moment, also before the first byte, and retry; providers refuse later rounds for the customer's text, fail
// over, and report usage first, last or never; one hides reasoning until its report.
// UNPAID_SEQUENCES=20000 for the long form; fast-check prints the seed of a failure.

const sequences = exampleCount('UNPAID_SEQUENCES', { short: 200, full: 1_000, all: 2_000 })
const sequencesPerAccount = 20
const atOnce = 10
/** They run concurrently: most of a sequence is waiting for retries on other nodes. */
const accountsAtOnce = Math.min(25, sequences / sequencesPerAccount)
/** Atomic units for an input token. An output token costs five times as much. */
const inputPrice = 20
const searchPrice = 8_750

type Plan = {
  readonly model: 'seals' | 'last' | 'first' | 'never'
  readonly searches: number
  /** After the searches. */
  readonly isRefused: boolean
  /** The first provider fails before output, and the next one answers. */
  readonly failsOver: boolean
  readonly effort: 'low' | 'high'
  readonly words: number
  /** Waits before its head, and before its output: time to leave. */
  readonly pauses: readonly [boolean, boolean]
}

type Step = {
  readonly node: 0 | 1 | 2
  readonly mark: 'none' | 'key' | 'sdk'
  readonly stream: boolean
  /** Frames that the client reads before it leaves; `sent`: when a provider has the request. Undefined: it reads everything. */
  readonly leaveAfter: number | 'sent' | undefined
  readonly isConcurrent: boolean
}

type Sequence = { readonly plan: Plan; readonly steps: readonly Step[] }

/** The clients that wait for answers to one prompt, by the plan's name. */
type Waiting = { clients: number; readonly sent: PromiseWithResolvers<void> }
const waiting = new Map<string, Waiting>()

/**
 * What providers did for a request while a client waited: the input of each round, the output of finished rounds, and of the last one
 * what a client has read, with the reasoning before it. What is on its way when the last client leaves is not counted.
 */
type Work = {
  inputTokens: number
  /** Of each round that searched, by whichever provider. */
  readonly searchTokens: number[]
  outputTokens: number
  hiddenTokens: number
  readWords: number
  searches: number
}
const works = new Map<string, Work>()

function workOf(id: string): Work {
  const known = works.get(id)
  if (known !== undefined) return known
  const work = { inputTokens: 0, searchTokens: [], outputTokens: 0, hiddenTokens: 0, readWords: 0, searches: 0 }
  works.set(id, work)
  return work
}

const folder = mkdtempSync(join(tmpdir(), 'penny-unpaid-'))
let upstream: ScriptedUpstream
const nodes: TestService[] = []
before(async () => {
  upstream = await startScriptedUpstream(followPlan)
  const web = startScriptedWeb()
  // Some take a moment, in which clients leave.
  web.search = async (query) => {
    const [, id, pace] = query.split(' ')
    workOf(id!).searches += 1
    if (pace === 'slowly') await pause(20)
    return [pennyResult]
  }
  const file = join(folder, 'providers.json')
  writeFileSync(file, JSON.stringify(providers(upstream.url)))
  const options = {
    web: web.tools,
    retryGrace: { beforeOutputMs: 15, afterOutputMs: 15 },
    environment: { UPSTREAM_BASE_URL: '', PROVIDERS_FILE: file, IN_FLIGHT_CAP_USDC: '1000' },
  }
  nodes.push(await startTestService(options))
  for (let node = 1; node < 3; node += 1) nodes.push(await startTestService({ ...options, besideOf: nodes[0]! }))
})
after(async () => {
  try {
    await assertBooksClosed(nodes[0]!.database)
  } finally {
    for (const node of nodes.toReversed()) await node.stop()
    await upstream.close()
    rmSync(folder, { recursive: true })
  }
})

function providers(base_url: string): object {
  const model = {
    input_per_million: String(inputPrice),
    output_per_million: String(5 * inputPrice),
    max_output_tokens: 2_000,
  }
  const chat = { protocol: 'chat-completions', base_url, api_key: null }
  const route = (...ids: string[]) => ids.map((provider, priority) => ({ provider, model: provider, priority }))
  return {
    providers: { seals: { ...chat, protocol: 'responses' }, last: chat, first: chat, never: chat },
    models: [
      { ...model, id: 'seals', upstreams: route('seals', 'last') },
      { ...model, id: 'last', upstreams: route('last') },
      { ...model, id: 'first', upstreams: route('first') },
      { ...model, id: 'never', upstreams: route('never') },
    ],
  }
}

const plan: fc.Arbitrary<Plan> = fc.record({
  model: fc.constantFrom('seals', 'last', 'first', 'never'),
  searches: fc.constantFrom(0, 0, 1, 2),
  isRefused: fc.constantFrom(false, false, true),
  failsOver: fc.constantFrom(false, false, false, true),
  effort: fc.constantFrom('low', 'high'),
  words: fc.integer({ min: 1, max: 12 }),
  pauses: fc.tuple(fc.boolean(), fc.boolean()),
})

const step: fc.Arbitrary<Step> = fc.record({
  node: fc.constantFrom(0, 1, 2),
  mark: fc.constantFrom('none', 'key', 'sdk'),
  stream: fc.boolean(),
  leaveAfter: fc.oneof(fc.constant('sent' as const), fc.constant(undefined), fc.integer({ min: 1, max: 8 })),
  isConcurrent: fc.boolean(),
})

const ofAccount = fc.array(fc.record({ plan, steps: fc.array(step, { minLength: 1, maxLength: 4 }) }), {
  minLength: sequencesPerAccount,
  maxLength: sequencesPerAccount,
})
const ofAccounts = fc.array(ofAccount, { minLength: accountsAtOnce, maxLength: accountsAtOnce })

/** docs/operations/charge.md: what an account that was charged this much may cost for nothing within an hour. */
function unpaidMax(charged: number): number {
  return Math.min(100_000, 10_000 + Math.floor(charged / 100))
}

test(`in ${sequences} sequences over three nodes, what nobody pays stays within the documented bound per account and hour`, async (t) => {
  const met = { requests: 0, free: 0, pastAllowance: 0, refused: 0, unpaidMost: 0 }
  let number = 0
  const runAll = async (all: readonly Sequence[]) => {
    const account = await nodes[0]!.openAccount('1000')
    for (let start = 0; start < all.length; start += atOnce) {
      await Promise.all(all.slice(start, start + atOnce).map((each) => run(account, each, number++)))
    }
    const rows = await endedRows(nodes[0]!, account, 0)
    const charged = rows.reduce((sum, { charged_atomic }) => sum + Number(charged_atomic), 0)
    const unpaid = rows.reduce((sum, row) => sum + unpaidOf(row), 0)
    const free = rows.filter((row) => unpaidOf(row) > 0)
    const listed = (some: readonly RequestBody[]) =>
      JSON.stringify(some.map((row) => [unpaidOf(row), row.status, row.charged_atomic, row.usage, workOf(row.id)]))
    // Whatever the sum: only the allowance may leave work unpaid.
    const lost = free.filter(({ status, charged_atomic }) => status !== 'cancelled' || charged_atomic !== '0')
    assert.deepEqual(lost, [], listed(lost))
    assert.ok(unpaid <= unpaidMax(charged), `${charged} was charged, ${unpaid} is unpaid: ${listed(free)}`)
    met.requests += rows.length
    met.free += free.length
    met.pastAllowance += rows.filter(({ error }) => error?.code === 'cancel_allowance_spent').length
    met.refused += rows.filter(({ status, charged_atomic }) => status === 'failed' && charged_atomic !== '0').length
    met.unpaidMost = Math.max(met.unpaidMost, unpaid)
  }
  await fc.assert(
    fc.asyncProperty(ofAccounts, async (accounts) => {
      await Promise.all(accounts.map(runAll))
      works.clear()
      waiting.clear()
    }),
    { numRuns: Math.ceil(sequences / sequencesPerAccount / accountsAtOnce), endOnFailure: true },
  )
  t.diagnostic(
    `${met.requests} requests; ${met.free} were free, at most ${met.unpaidMost} atomic USDC of one account; ${met.pastAllowance} cancels were charged past the allowance; ${met.refused} refusals were charged the rounds before`,
  )
  assert.ok(met.unpaidMost > 5_000 && met.pastAllowance > 0 && met.refused > 0, 'the sequences meet what they are for')
})

/** At list price. Refunded attempts are bounded apart (docs/operations/retry.md). */
function unpaidOf(row: RequestBody): number {
  const { inputTokens, outputTokens, hiddenTokens, readWords, searches } = workOf(row.id)
  const output = outputTokens + (readWords > 0 ? hiddenTokens + readWords : 0)
  return Math.max(0, inputPrice * (inputTokens + 5 * output) + searches * searchPrice - Number(row.charged_atomic))
}

async function run(account: TestAccount, { plan: wanted, steps }: Sequence, number: number): Promise<void> {
  const running: Promise<void>[] = []
  let sdkRetries = 0
  for (const [index, each] of steps.entries()) {
    if (!each.isConcurrent) await Promise.all(running)
    // Retries share a prompt; other requests have one each.
    const name = each.mark === 'none' ? `${number}-${index}` : `${number}-${each.mark}`
    const headers = {
      ...(each.mark === 'key' && { 'idempotency-key': name }),
      ...(each.mark === 'sdk' && { 'x-stainless-retry-count': String(sdkRetries++) }),
    }
    running.push(ask(account, each, wanted, { name, headers }))
  }
  await Promise.all(running)
}

type Named = { readonly name: string; readonly headers: Readonly<Record<string, string>> }

async function ask(account: TestAccount, { node, stream, leaveAfter }: Step, wanted: Plan, { name, headers }: Named) {
  const others = waiting.get(name) ?? { clients: 0, sent: Promise.withResolvers<void>() }
  waiting.set(name, others)
  others.clients += 1
  const encoded = Buffer.from(JSON.stringify({ ...wanted, name })).toString('base64url')
  const messages = [{ role: 'user', content: `plan:${encoded} ${' penny'.repeat(60)}` }]
  const { model, effort } = wanted
  const call = callChat(
    nodes[node]!,
    account,
    { model, messages, stream, reasoning_effort: effort, max_tokens: 2_000, web_fetch: false },
    { headers },
  )
  const leave = () => {
    others.clients -= 1
    call.leave()
  }
  if (leaveAfter === 'sent') {
    // Another client may get the answer without a provider.
    await Promise.race([others.sent.promise, call.answer])
    return leave()
  }
  let [frames, words] = [0, 0]
  try {
    const answer = await call.answer
    const work = workOf(String(answer.headers['x-router-request-id']))
    for await (const frame of framesOf(answer)) {
      frames += 1
      words += frame.split(' penny').length - 1
      work.readWords = Math.max(work.readWords, words)
      if (frames === leaveAfter) break
    }
  } catch {
    // A joined attempt was cancelled, or the connection was cut.
  }
  leave()
}

/** A provider: searches, then refuses, or reasons and answers word by word. */
async function followPlan(exchange: UpstreamExchange): Promise<void> {
  const input = JSON.stringify(exchange.body)
  const [, encoded] = /plan:([\w-]+)/.exec(input)!
  const given = JSON.parse(Buffer.from(encoded!, 'base64url').toString('utf8')) as Plan & { readonly name: string }
  const provider = String(exchange.body.model) as Plan['model']
  const { searches, isRefused, failsOver, effort, words, pauses, name } = given
  const { clients, sent } = waiting.get(name)!
  const protocol = provider === 'seals' ? responsesOf(exchange) : chatOf(exchange, provider)
  if (failsOver && provider === 'seals') return void exchange.outgoing.writeHead(500).end('{}')
  const done = input.split(provider === 'seals' ? '"function_call_output"' : '"role":"tool"').length - 1
  const round = done < searches ? 'search' : isRefused && searches > 0 ? 'refusal' : 'answer'
  const hidden = provider === 'last' ? { low: 30, high: 300 }[effort] : 0
  const id = String(exchange.body.prompt_cache_key)
  const query = JSON.stringify({ query: `pennies ${id} ${pauses[1] ? 'slowly' : 'quickly'}` })
  const work = workOf(id)
  work.searchTokens[done] = hidden + countTokens(query)
  work.outputTokens = work.searchTokens.slice(0, done).reduce((sum, tokens) => sum + tokens, 0)
  work.hiddenTokens = hidden
  sent.resolve()
  if (round === 'refusal') {
    exchange.outgoing.writeHead(400, { 'content-type': 'application/json' })
    return void exchange.outgoing.end(JSON.stringify({ error: { code: 'invalid_prompt', message: 'No.' } }))
  }
  const inputTokens = countTokens(protocol.texts)
  if (clients > 0) work.inputTokens += inputTokens
  if (pauses[0]) await Promise.race([pause(20), exchange.hungUp])
  protocol.begin(inputTokens)
  if (pauses[1]) await Promise.race([pause(20), exchange.hungUp])
  if (exchange.outgoing.destroyed) return
  if (round === 'search') protocol.call(query)
  else {
    for (let word = 0; word < words && !exchange.outgoing.destroyed; word += 1) {
      protocol.word()
      await turn()
    }
  }
  protocol.end(inputTokens, hidden, round === 'search' ? countTokens(query) : words)
}

type Writer = {
  /** What the model reads. */
  readonly texts: string
  begin(inputTokens: number): void
  word(): void
  call(query: string): void
  end(inputTokens: number, hidden: number, written: number): void
}

type Content = string | readonly { readonly text?: string }[] | null
const textIn = (content: Content = '') =>
  typeof content === 'string' ? content : (content ?? []).map(({ text: own = '' }) => own).join('')

function responsesOf({ body, send, end }: UpstreamExchange): Writer {
  const items = body.input as readonly { readonly content?: Content; readonly output?: string }[]
  return {
    texts: items.map(({ content, output = '' }) => textIn(content) + output).join(''),
    begin: () => send(created),
    word: () => send(text(' penny')),
    call: (query) => send(...functionCall('web_search', query)),
    end(input_tokens, hidden, written) {
      const output_tokens = hidden + written
      send(completed({ input_tokens, output_tokens, total_tokens: input_tokens + output_tokens }))
      end()
    },
  }
}

function chatOf({ body, outgoing }: UpstreamExchange, reports: Plan['model']): Writer {
  const messages = body.messages as readonly { readonly content?: Content }[]
  const send = (chunk: object) => outgoing.write(`data: ${JSON.stringify({ id: 'c', choices: [], ...chunk })}\n\n`)
  const delta = (content: object, finish_reason: string | null = null) => ({
    choices: [{ index: 0, delta: content, finish_reason }],
  })
  let reason = 'stop'
  return {
    texts: messages.map(({ content }) => textIn(content)).join(''),
    begin(prompt_tokens) {
      outgoing.writeHead(200, { 'content-type': 'text/event-stream' })
      send({
        ...delta({ role: 'assistant' }),
        ...(reports === 'first' && { usage: { prompt_tokens, completion_tokens: 1 } }),
      })
    },
    word: () => void send(delta({ content: ' penny' })),
    call(query) {
      reason = 'tool_calls'
      send(delta({ tool_calls: [{ index: 0, id: 'call', function: { name: 'web_search', arguments: query } }] }))
    },
    end(prompt_tokens, reasoning_tokens, written) {
      send(delta({}, reason))
      const completion_tokens = reasoning_tokens + written
      if (reports === 'last') {
        send({ usage: { prompt_tokens, completion_tokens, completion_tokens_details: { reasoning_tokens } } })
      }
      outgoing.end('data: [DONE]\n\n')
    },
  }
}
