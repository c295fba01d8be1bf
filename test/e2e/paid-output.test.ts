import assert from 'node:assert/strict'
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
  reasoning,
  type ScriptedUpstream,
  startScriptedUpstream,
  text,
  type UpstreamExchange,
} from '../support/scripted-upstream.ts'
import { startScriptedWeb } from '../support/scripted-web.ts'
import { type RequestBody, startTestService, type TestAccount, type TestService } from '../support/service.ts'

// Whatever a customer does (cancel, retry with a key or as an SDK does, join, read tool activity and hang up): each answer is charged at
// least the list price of what a client has read of it, and refunds are bounded. What no client has read: `unpaid-work.test.ts`.
// PAID_SEQUENCES=20000 for the long form; fast-check prints the seed of a failure.

const sequences = exampleCount('PAID_SEQUENCES', { short: 40, full: 150, all: 2_000 })
/** Each on an account of its own: free cancels are counted per account, and both sides of that limit should be met. */
const sequencesPerAccount = 20
const atOnce = 10

/** Instructions to the model, which it reads from the prompt. */
type Plan = {
  /** Rounds that call one of our tools, before the one that answers. */
  readonly tools: readonly ('web_search' | 'web_fetch')[]
  readonly thoughts: number
  readonly words: number
  /** Accepts, and then writes nothing for a while: time to leave before any output. */
  readonly isSilent: boolean
}

type Step = {
  /** Steps with one prompt and one mark are retries of one another. */
  readonly prompt: 0 | 1
  readonly mark: 'none' | 'key' | 'sdk'
  readonly stream: boolean
  /** Frames that the client reads before it hangs up; 0: before the headers. Undefined: it reads everything. */
  readonly leaveAfter: number | undefined
  /** Begins while the step before still runs. */
  readonly isConcurrent: boolean
}

const silenceMs = 30

type Sequence = { readonly plans: readonly [Plan, Plan]; readonly steps: readonly Step[] }

let upstream: ScriptedUpstream
let service: TestService
before(async () => {
  upstream = await startScriptedUpstream(followPlan)
  const web = startScriptedWeb()
  service = await startTestService({
    upstreamUrl: upstream.url,
    web: web.tools,
    retryGrace: { beforeOutputMs: 15, afterOutputMs: 15 },
    environment: { IN_FLIGHT_CAP_USDC: '1000' },
  })
})
after(async () => {
  try {
    await assertBooksClosed(service.database)
  } finally {
    await service.stop()
    await upstream.close()
  }
})

const plan: fc.Arbitrary<Plan> = fc.record({
  tools: fc.array(fc.constantFrom('web_search', 'web_fetch'), { maxLength: 2 }),
  thoughts: fc.nat(4),
  words: fc.nat(12),
  isSilent: fc.constantFrom(false, false, true),
})

const step: fc.Arbitrary<Step> = fc.record({
  prompt: fc.constantFrom(0, 0, 1),
  mark: fc.constantFrom('none', 'key', 'sdk'),
  stream: fc.boolean(),
  leaveAfter: fc.option(fc.nat(8), { nil: undefined }),
  isConcurrent: fc.boolean(),
})

const sequence: fc.Arbitrary<Sequence> = fc.record({
  plans: fc.tuple(plan, plan),
  steps: fc.array(step, { minLength: 1, maxLength: 5 }),
})

const ofOneAccount = <Value>(each: fc.Arbitrary<Value>) =>
  fc.array(each, { minLength: sequencesPerAccount, maxLength: sequencesPerAccount })

test(`in ${sequences} sequences of requests, cancels and retries every answer is paid for as far as it was read`, async (t) => {
  const met: Met = { answers: 0, cut: 0, joined: 0, free: 0, refunds: 0 }
  let number = 0
  await fc.assert(
    fc.asyncProperty(ofOneAccount(sequence), async (all) => {
      const account = await service.openAccount('1000')
      const reads: Read[] = []
      for (let start = 0; start < all.length; start += atOnce) {
        const some = all.slice(start, start + atOnce)
        reads.push(...(await Promise.all(some.map((each) => run(account, each, number++)))).flat())
      }
      // Once for the whole account: polling for the end of each answer on its own is much of the work.
      const rows = await endedRows(service, account, 0)
      checkPaid(rows, reads, met)
      const refunds = rows.filter(({ given_back_atomic }) => given_back_atomic !== '0').length
      assert.ok(refunds <= refundsMax(rows.length), `${refunds} of ${rows.length} requests were refunded`)
      met.refunds += refunds
    }),
    { numRuns: Math.ceil(sequences / sequencesPerAccount), endOnFailure: true },
  )
  t.diagnostic(
    `${met.answers} answers read, ${met.cut} of them cut off, ${met.joined} by several clients; ${met.free} cost nothing, ${met.refunds} were refunded`,
  )
  assert.ok(met.cut > 0 && met.joined > 0 && met.answers > sequences / 2, 'the sequences meet what they are for')
})

type Met = Record<'answers' | 'cut' | 'joined' | 'free' | 'refunds', number>

/** As docs/operations/retry.md says: five an hour, or 2 % of the account's requests. */
function refundsMax(requests: number): number {
  return Math.max(5, Math.ceil(requests / 50))
}

/** What the clients of one sequence have read. */
async function run(account: TestAccount, { plans, steps }: Sequence, number: number): Promise<readonly Read[]> {
  const prompts = plans.map((each, index) => promptOf(each, `${number}-${index}`))
  const counts: [number, number] = [0, 0]
  const running: Promise<Read | undefined>[] = []
  for (const each of steps) {
    if (!each.isConcurrent) await Promise.all(running)
    const retryCount = each.mark === 'sdk' ? counts[each.prompt]++ : 0
    running.push(read(account, each, prompts[each.prompt]!, `${number}-${each.prompt}`, retryCount))
  }
  return (await Promise.all(running)).filter((each) => each !== undefined)
}

/** Each answer is charged at least the list price of the longest part of it that a client has read. */
function checkPaid(rows: readonly RequestBody[], reads: readonly Read[], met: Met): void {
  const rowOf = new Map(rows.map((row) => [row.id, row]))
  for (const [id, ofOne] of Object.entries(Object.groupBy(reads, ({ requestId }) => requestId))) {
    const row = rowOf.get(id)
    const longest = ofOne!.reduce((best, each) => (each.tokens > best.tokens ? each : best))
    met.answers += 1
    if (row === undefined) {
      // A refusal: it is written to the log a moment later.
      assert.equal(longest.tokens, 0, `${id} is not in the log`)
      met.free += 1
      continue
    }
    met.cut += row.status === 'cancelled' ? 1 : 0
    met.joined += ofOne!.length > 1 ? 1 : 0
    if (longest.tokens === 0) {
      met.free += row.charged_atomic === '0' ? 1 : 0
      continue
    }
    const listPrice = BigInt(countTokens(longest.prompt)) + 5n * BigInt(longest.tokens)
    assert.ok(
      BigInt(row.charged_atomic) >= listPrice,
      `${id} was charged ${row.charged_atomic}; ${longest.tokens} tokens of it were read, list price ${listPrice}`,
    )
  }
}

/** What one client has read of one answer. */
type Read = {
  readonly requestId: string
  readonly prompt: string
  readonly tokens: number
}

async function read(
  account: TestAccount,
  { mark, stream, leaveAfter }: Step,
  prompt: string,
  key: string,
  retryCount: number,
): Promise<Read | undefined> {
  const headers = {
    ...(mark === 'key' && { 'idempotency-key': key }),
    ...(mark === 'sdk' && { 'x-stainless-retry-count': String(retryCount) }),
  }
  const call = callChat(
    service,
    account,
    { messages: [{ role: 'user', content: prompt }], max_tokens: 600, stream },
    { headers },
  )
  if (leaveAfter === 0) {
    for (let turns = 0; turns < 20; turns += 1) await turn()
    call.leave()
    return undefined
  }
  const answer = await call.answer
  const requestId = String(answer.headers['x-router-request-id'])
  const texts: string[] = []
  let frames = 0
  try {
    for await (const frame of framesOf(answer)) {
      frames += 1
      texts.push(...textsOf(frame))
      if (frames === leaveAfter) break
    }
  } catch {
    // The service cut the connection: what was read before counts.
  }
  call.leave()
  return { requestId, prompt, tokens: countTokens(texts.join('')) }
}

type Message = { content?: string | null; reasoning_content?: string }
type Frame = {
  choices?: readonly { delta?: Message; message?: Message }[]
  tool_activity?: { status: string; query?: string; url?: string }
}

/** Everything in a frame, or in a buffered answer, that the model wrote. */
function textsOf(frame: string): readonly string[] {
  const json = frame.startsWith('data: {') ? frame.slice('data: '.length) : frame.startsWith('{') ? frame : undefined
  if (json === undefined) return []
  const { choices = [], tool_activity: activity } = JSON.parse(json) as Frame
  const messages = choices.flatMap(({ delta, message }) => delta ?? message ?? [])
  const called = activity?.status === 'started' ? [activity.query ?? activity.url ?? ''] : []
  return [...messages.flatMap(({ content, reasoning_content }) => [reasoning_content ?? '', content ?? '']), ...called]
}

const searched = 'how many pennies make a pound and who decided that'
const fetched = 'https://example.com/pennies'

function promptOf(each: Plan, name: string): string {
  return `Please read ${fetched} and answer. plan:${Buffer.from(JSON.stringify(each)).toString('base64url')} ${name}`
}

/** The upstream: calls a tool per round, then thinks and answers word by word. */
async function followPlan(exchange: UpstreamExchange): Promise<void> {
  const input = JSON.stringify(exchange.body.input)
  const [, encoded] = /plan:([\w-]+)/.exec(input)!
  const { tools, thoughts, words, isSilent } = JSON.parse(Buffer.from(encoded!, 'base64url').toString('utf8')) as Plan
  const done = input.split('"function_call_output"').length - 1
  const tool = tools[done]
  exchange.send(created)
  await (isSilent ? Promise.race([pause(silenceMs), exchange.hungUp]) : turn())
  const isOffered = JSON.stringify(exchange.body.tools ?? []).includes(tool ?? 'none')
  const written: string[] = []
  const write = async (event: object, wording: string) => {
    written.push(wording)
    exchange.send(event)
    await turn()
  }
  if (tool !== undefined && isOffered) {
    const given = tool === 'web_search' ? { query: searched } : { url: fetched }
    written.push(JSON.stringify(given))
    exchange.send(...functionCall(tool, given))
  } else {
    for (let at = 0; at < thoughts; at += 1) await write(reasoning(' pondering'), ' pondering')
    for (let at = 0; at < words; at += 1) await write(text(' penny'), ' penny')
  }
  const output_tokens = countTokens(written.join(''))
  const input_tokens = countTokens(input)
  exchange.send(completed({ input_tokens, output_tokens, total_tokens: input_tokens + output_tokens }))
  exchange.end()
}
