import assert from 'node:assert/strict'
import { once } from 'node:events'
import { beforeEach, test } from 'node:test'
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base'
import { endOrphanedHolds } from '../../src/jobs/end-orphaned-holds.ts'
import { allFrames, callChat, chunkOf, endedRow, endedRows, framesOf } from '../support/chat-client.ts'
import { openLedger } from '../support/ledger.ts'
import {
  answers,
  completed,
  created,
  failedEvent,
  functionCall,
  inTurn,
  reasoning,
  type Turn,
  text,
  type UpstreamExchange,
} from '../support/scripted-upstream.ts'
import { failsToFetch, failsToSearch, pennyResult, startScriptedWeb } from '../support/scripted-web.ts'
import { costOfLines, getRow, postChat, type RequestBody, type TestAccount } from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'

// What calls of our tools cost: how far a hold grows, what happens when tokens or money are short, and what a request pays whose client
// leaves, whose upstream fails or whose node dies. Prices of the default model: 1 atomic unit for a token of input, 5 for one of output;
// a search is 8,750. A scripted round reports 10 tokens of input and 5 of output.

const searchPrice = 8_750
const roundPrice = 10 + 5 * 5

const web = startScriptedWeb()
const suite = serviceSuite({ CHECKPOINT_MS: '20' }, undefined, web.tools)
let account: TestAccount
beforeEach(async () => {
  web.forget()
  account = await suite.service.openAccount('25')
})

type Completion = { readonly choices: [{ message: { readonly content: string | null }; finish_reason: string }] }

const messages = [{ role: 'user', content: 'What is a penny? See https://example.com/coins.' }]
const searching = (query = 'penny') => [created, ...functionCall('web_search', { query })]
const fetching = (url = 'https://example.com/coins') => [created, ...functionCall('web_fetch', { url })]

type Activity = { readonly type: string; readonly status: string; readonly query?: string; readonly url?: string }

/** Leaves at the first activity that the test wants. The web never answers by itself. */
async function leaveAt(turns: readonly Turn[], wanted: (activity: Activity) => boolean): Promise<Activity> {
  suite.upstream.answer = inTurn(turns)
  const call = callChat(suite.service, account, { messages, stream: true, reasoning_effort: 'none' })
  for await (const frame of framesOf(await call.answer)) {
    const activity = activityOf(frame)
    if (activity === undefined || !wanted(activity)) continue
    call.leave()
    return activity
  }
  throw new Error('no such activity')
}

/** Never begins: it waits for its turn. */
const hangs = (_: unknown, signal: AbortSignal) =>
  new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))

test('a query that was shown is paid for: its round is billed although the search never ran, and 400 characters are shown', async () => {
  web.search = hangs
  const answer = 'The whole answer. '.repeat(200)
  const { query } = await leaveAt([searching(answer)], ({ status }) => status === 'started')
  assert.equal(query, answer.slice(0, 400))
  assert.deepEqual(web.queries, [query])
  const row = await endedRow(suite.service, account)
  assert.deepEqual([row.status, Number(row.charged_atomic), row.cost.search_calls], ['cancelled', roundPrice, 0])
  assert.equal(row.usage?.source, 'upstream')
})

test('the page that a model chose is paid for, and nothing is shown of its address that is not used', async () => {
  web.page = hangs
  const { url } = await leaveAt([fetching('https://example.com/coins#the%20whole%20answer')], () => true)
  assert.equal(url, 'https://example.com/coins')
  const row = await endedRow(suite.service, account)
  assert.deepEqual([row.status, Number(row.charged_atomic)], ['cancelled', roundPrice])
})

for (const [what, turn] of [
  ['search', searching('x'.repeat(2_000))],
  ['page', fetching()],
] as const) {
  test(`a client that leaves after a ${what} has failed pays for the round that asked for it`, async () => {
    web.search = failsToSearch
    web.page = failsToFetch
    const { query = '' } = await leaveAt([turn, () => {}], ({ status }) => status === 'failed')
    assert.ok(query.length <= 400)
    const row = await endedRow(suite.service, account)
    assert.deepEqual([row.status, Number(row.charged_atomic), row.cost.search_calls], ['cancelled', roundPrice, 0])
  })
}

test('ten clients that read the query and leave pay for ten rounds, input included', async () => {
  web.search = hangs
  for (let time = 0; time < 10; time += 1) await leaveAt([searching()], () => true)
  const [{ charged }] = (await untilEnded()) as [{ charged: bigint }]
  assert.equal(charged, BigInt(10 * roundPrice))

  async function untilEnded(): Promise<object[]> {
    for (;;) {
      const rows = await suite.service.database.query<{ open: number }>(
        `select sum(charged)::bigint as charged, (count(*) filter (where status = 'held'))::int as open
           from request_log where account_id = $1`,
        [account.id],
      )
      if (rows[0]!.open === 0) return rows
    }
  }
})

test('the last search that leaves room for an answer is run, and the first that does not is neither run nor charged', async () => {
  for (const [maxTokens, searches] of [
    [5 + 64, 1],
    [5 + 63, 0],
    [21, 0],
  ] as const) {
    web.forget()
    suite.upstream.answer = inTurn([searching(), [created, text('A coin.')]])
    const { body, row, activities } = await stream({ max_tokens: maxTokens })
    assert.equal(web.queries.length, searches)
    assert.deepEqual([body, row.finish_reason], ['A coin.', 'stop'])
    assert.equal(Number(row.charged_atomic), 2 * roundPrice + searches * searchPrice)
    if (searches === 1) continue
    const refused = { type: 'web_search', call: 1, query: 'penny', status: 'failed', reason: 'max_tokens_spent' }
    assert.deepEqual(activities, [refused])
    assert.deepEqual(row.cost.lines.slice(2), [
      {
        item: 'web_search',
        units: 0,
        per_call: '0.00875',
        call: 1,
        status: 'failed',
        reason: 'max_tokens_spent',
        results: 0,
      },
    ])
    const last = suite.upstream.exchanges.at(-1)!
    assert.match(outputsOf(last)[0]!, /budget of this request is spent/)
    assert.equal(last.body.tool_choice, 'none')
  }
})

test('three searches in one round without tokens for an answer cost nothing', async () => {
  const calls = [0, 1, 2].flatMap((index) => functionCall('web_search', { query: `q${index}` }, index))
  suite.upstream.answer = inTurn([[created, ...calls]], { input_tokens: 10, output_tokens: 18 })
  const { body, row, activities } = await stream({ max_tokens: 30 })
  assert.deepEqual([body, row.finish_reason], ['', 'length'])
  assert.deepEqual([web.queries, Number(row.charged_atomic)], [[], 10 + 5 * 18])
  assert.deepEqual(
    activities.map(({ query, status, reason }) => [query, status, reason]),
    ['q0', 'q1', 'q2'].map((query) => [query, 'failed', 'max_tokens_spent']),
  )
})

test('reasoning that used up the tokens leaves no search to pay for', async () => {
  const usage = { input_tokens: 10, output_tokens: 86, output_tokens_details: { reasoning_tokens: 80 } }
  suite.upstream.answer = inTurn(
    [[created, reasoning('Hm.'), ...functionCall('web_search', { query: 'penny' }, 1)]],
    usage,
  )
  const { row } = await stream({ max_tokens: 100 })
  assert.deepEqual([web.queries, Number(row.charged_atomic), row.finish_reason], [[], 10 + 5 * 86, 'length'])
})

test('a page is not read either when its answer could not be written', async () => {
  suite.upstream.answer = inTurn([fetching(), [created, text('A coin.')]])
  const { row, activities } = await stream({ max_tokens: 40, web_search: false })
  // The quote leaves enough for a second round, in which the model answers without the page.
  assert.deepEqual([web.urls, Number(row.charged_atomic), row.finish_reason], [[], 2 * roundPrice, 'stop'])
  assert.deepEqual(
    activities.map(({ type, reason }) => [type, reason]),
    [['web_fetch', 'max_tokens_spent']],
  )
})

test('a search without money for it is shown to the caller, in the stream and in the row', async () => {
  const quote = await quoteOf({ max_tokens: 1_000 })
  account = await suite.service.openAccount('25', { limit: (quote + 100n) as never })
  suite.upstream.answer = inTurn([searching(), [created, text('A coin.')]])
  const { body, row, activities } = await stream({ max_tokens: 1_000 })
  assert.deepEqual([body, web.queries, Number(row.charged_atomic)], ['A coin.', [], 2 * roundPrice])
  const refused = { type: 'web_search', call: 1, query: 'penny', status: 'failed', reason: 'budget_spent' }
  assert.deepEqual(activities, [refused])
  assert.deepEqual(
    row.cost.lines.slice(2).map(({ item, status, reason }) => [item, status, reason]),
    [['web_search', 'failed', 'budget_spent']],
  )
})

test('a search needs no more money than the search and a short answer: what is left of max_tokens is not asked for', async () => {
  const quote = await quoteOf({ max_tokens: 4_000 })
  // The search, a thousand tokens of results and what the first round has used; the quote has the tokens of the answer already.
  account = await suite.service.openAccount('25', { limit: (quote + 2_000n) as never })
  suite.upstream.answer = inTurn([searching(), [created, text(`A coin, see ${pennyResult.url}`)]])
  const { row } = await stream({ max_tokens: 4_000 })
  assert.deepEqual([web.queries.length, Number(row.charged_atomic)], [1, 2 * roundPrice + searchPrice])
  assert.match(outputsOf(suite.upstream.exchanges.at(-1)!)[0]!, /A penny is a small coin/)
  assert.ok(BigInt(row.charged_atomic) <= BigInt(row.quote_atomic) + BigInt(row.extended_atomic))
})

test('failed searches do not use up the three of a request, and are tried six times at most', async () => {
  let left = 3
  web.search = () => (left-- > 0 ? failsToSearch() : [pennyResult])
  const rounds = (count: number) => Array.from({ length: count }, (_, index) => searching(`q${index}`))
  suite.upstream.answer = inTurn([...rounds(6), [created, text('A coin.')]])
  const { row } = await stream({})
  assert.deepEqual([web.queries.length, row.cost.search_calls], [6, 3])
  assert.equal(Number(row.charged_atomic), 7 * roundPrice + 3 * searchPrice)

  web.forget()
  web.search = failsToSearch
  const calls = Array.from({ length: 20 }, (_, index) => functionCall('web_search', { query: `q${index}` }, index))
  suite.upstream.answer = inTurn([
    [created, ...calls.flat()],
    [created, text('A coin.')],
  ])
  const failing = await stream({})
  assert.deepEqual([web.queries.length, failing.row.cost.search_calls], [6, 0])
  assert.equal(Number(failing.row.charged_atomic), 2 * roundPrice)
})

test('the hold grows before a search, and the row shows by how much', async () => {
  suite.upstream.answer = inTurn([
    [created, ...functionCall('web_search', { query: 'penny' })],
    [created, text('A coin.')],
  ])
  const { row, held } = await ask({ max_tokens: 100 })
  assert.ok(Number(row.charged_atomic) > Number(row.quote_atomic))
  assert.ok(Number(row.extended_atomic) >= searchPrice)
  // `held` equals the header, and `refunded` equals the gain of credit: nothing here, because credit pays for the rest.
  assert.equal(row.held_atomic, held)
  assert.equal(row.held_atomic, row.quote_atomic)
  assert.equal(row.refunded_atomic, '0')
  assert.equal(Number(row.excess_atomic), Number(row.charged_atomic) - Number(row.quote_atomic))
  assert.equal(Number(row.charged_atomic), 2 * roundPrice + searchPrice)
})

for (const [what, open] of [
  ['balance', (quote: bigint) => suite.service.openAccount(`0.${String(quote + 100n).padStart(6, '0')}`)],
  ['key’s limit', (quote: bigint) => suite.service.openAccount('25', { limit: (quote + 100n) as never })],
] as const) {
  test(`a search that the ${what} does not allow is not made: the model gets a note and answers with what it has`, async () => {
    const body = { messages, max_tokens: 1_000 }
    suite.upstream.answer = answers(created, text('Hi'), completed())
    const first = await postChat(suite.service, account.apiKey, body)
    const poor = await open(BigInt(first.headers.get('x-router-held-usdc')!))
    suite.upstream.answer = inTurn([
      [created, ...functionCall('web_search', { query: 'penny' })],
      [created, text('Without a search: a coin.')],
    ])
    const answer = await postChat(suite.service, poor.apiKey, body)
    const { choices } = (await answer.json()) as Completion
    assert.equal(choices[0].message.content, 'Without a search: a coin.')
    assert.deepEqual(web.queries, [])
    const row = await getRow(suite.service, poor.apiKey, answer)
    assert.deepEqual([row.extended_atomic, Number(row.charged_atomic)], ['0', 2 * roundPrice])
    const last = suite.upstream.exchanges.at(-1)!
    assert.match(outputsOf(last)[0]!, /budget of this request is spent/)
    assert.equal(last.body.tool_choice, 'none')
  })
}

test('with search off a page is cut to what the quote leaves, and the answer to what is left then', async () => {
  web.page = (url) => ({ url, title: 'Long', text: 'A penny is a small coin. '.repeat(4_000), truncated: false })
  suite.upstream.answer = inTurn([
    [created, ...functionCall('web_fetch', { url: 'https://example.com/coins' })],
    [created, text('A coin.')],
  ])
  const { row } = await ask({ web_search: false, max_tokens: 2_000 })
  assert.deepEqual([row.extended_atomic, row.status], ['0', 'succeeded'])
  const { max_output_tokens } = suite.upstream.exchanges.at(-1)!.body as { max_output_tokens: number }
  const output = outputsOf(suite.upstream.exchanges.at(-1)!)[0]!
  assert.ok(max_output_tokens >= 1_000 && max_output_tokens < 2_000, String(max_output_tokens))
  assert.ok(output.length > 5_000 && output.length < 60_000, String(output.length))
  assert.match(output, /=====$/)
})

test('with search off and nothing left for another round, the answer ends with length, not with an error', async () => {
  suite.upstream.answer = inTurn([[created, ...functionCall('web_fetch', { url: 'https://example.com/coins' })]])
  const before = suite.upstream.exchanges.length
  const { row, body } = await ask({ web_search: false, max_tokens: 20 })
  assert.equal(body.choices[0].finish_reason, 'length')
  assert.deepEqual([row.status, row.finish_reason, Number(row.charged_atomic)], ['succeeded', 'length', roundPrice])
  assert.equal(suite.upstream.exchanges.length - before, 1)
})

test('max_tokens are those of all rounds together', async () => {
  suite.upstream.answer = inTurn(
    [
      [created, ...functionCall('web_search', { query: 'penny' })],
      [created, text('A coin.')],
    ],
    { input_tokens: 10, output_tokens: 60 },
  )
  await ask({ max_tokens: 200 })
  assert.equal(suite.upstream.exchanges.at(-1)!.body.max_output_tokens, 140)
})

for (const [title, headers, end, searches] of [
  ['pays for it when it completes', {}, () => [pennyResult], 1],
  ['does not pay for it when it fails', {}, failsToSearch, 0],
  ['pays for it although it could retry', { 'x-stainless-retry-count': '0' }, () => [pennyResult], 1],
] as const) {
  test(`a client that leaves in the middle of a search ${title}`, async () => {
    const running = Promise.withResolvers<AbortSignal>()
    const over = Promise.withResolvers<void>()
    web.search = async (_, signal) => {
      running.resolve(signal)
      await over.promise
      return end()
    }
    suite.upstream.answer = inTurn([
      [created, reasoning('Hm.'), ...functionCall('web_search', { query: 'penny' }, 1)],
      () => assert.fail('a round for no client'),
    ])
    const call = callChat(suite.service, account, { messages, stream: true }, { headers })
    const signal = await running.promise
    call.leave()
    await once(signal, 'abort')
    over.resolve()
    const row = await endedRow(suite.service, account)
    const paid = ['cancelled', roundPrice + searches * searchPrice, searches]
    assert.deepEqual([row.status, Number(row.charged_atomic), row.cost.search_calls], paid)
    assertAddsUp(row)
  })
}

test('a client that leaves after a search, before any output, pays for the round, the search, and the input of the round that was sent', async () => {
  const further = Promise.withResolvers<UpstreamExchange>()
  suite.upstream.answer = inTurn([[created, ...functionCall('web_search', { query: 'penny' })], further.resolve])
  const call = callChat(suite.service, account, { messages, stream: true })
  const exchange = await further.promise
  call.leave()
  await exchange.hungUp
  const row = await endedRow(suite.service, account)
  const input = row.usage!.prompt_tokens - 10
  assert.ok(input > countTokens(outputsOf(exchange)[0]!), `${input} tokens of the results and what came before`)
  assert.deepEqual([row.status, Number(row.charged_atomic)], ['cancelled', roundPrice + searchPrice + input])
  assertAddsUp(row)
})

test('no further round is sent while no client waits; a retry that joins pays for the rounds before a refusal', async () => {
  const asked = Promise.withResolvers<UpstreamExchange>()
  const refuses = ({ send, end }: UpstreamExchange) => {
    send(created, failedEvent('invalid_prompt'))
    end()
  }
  suite.upstream.answer = asked.resolve
  const before = suite.upstream.exchanges.length
  const options = { headers: { 'idempotency-key': 'joined' } }
  const first = callChat(suite.service, account, { messages, stream: true }, options)
  const exchange = await asked.promise
  first.leave()
  await exchange.read()
  // A call that is not run shows no activity.
  const calls = fetching('https://elsewhere.test/')
  exchange.send(...calls, completed())
  exchange.end()
  // Meanwhile another request of the account gets through its two rounds.
  suite.upstream.answer = inTurn([calls, [created, text('A coin.')]])
  await ask({})
  assert.equal(suite.upstream.exchanges.length - before, 1 + 2)
  suite.upstream.answer = refuses
  const retry = callChat(suite.service, account, { messages, stream: true }, options)
  assert.match((await allFrames(retry)).join(), /"error":/)
  assert.equal(suite.upstream.exchanges.length - before, 1 + 2 + 1)
  const rows = await endedRows(suite.service, account, 3)
  assert.deepEqual(rows.map(({ status, charged_atomic }) => [status, Number(charged_atomic)]).sort(), [
    ['failed', roundPrice],
    ['refused', 0],
    ['succeeded', 2 * roundPrice],
  ])
})

test('a client that leaves before a first search has run pays nothing: our own calls are no output', async () => {
  const called = Promise.withResolvers<UpstreamExchange>()
  suite.upstream.answer = (exchange) => {
    exchange.send(created, ...functionCall('web_search', { query: 'penny' }))
    called.resolve(exchange)
  }
  const call = callChat(suite.service, account, { messages, stream: true })
  const { hungUp } = await called.promise
  await framesOf(await call.answer).next()
  call.leave()
  await hungUp
  const row = await endedRow(suite.service, account)
  assert.deepEqual([row.status, row.charged_atomic, row.usage], ['cancelled', '0', null])
})

for (const [stream, said, charged] of [
  [true, [text('Let me look.')], roundPrice + searchPrice],
  [true, [], 0],
  [false, [text('Let me look.')], 0],
] as const) {
  const when = said.length > 0 ? 'after output' : 'before output'
  test(`the upstream fails in the round after a search, ${stream ? 'streamed' : 'buffered'}, ${when}: ${charged} is charged`, async () => {
    suite.upstream.answer = inTurn([
      [created, ...said, ...functionCall('web_search', { query: 'penny' }, 1)],
      (exchange) => {
        exchange.send(created, failedEvent())
        exchange.end()
      },
    ])
    const answer = await postChat(suite.service, account.apiKey, { messages, stream })
    const body = await answer.text()
    assert.match(body, /"error":/)
    const row = await getRow(suite.service, account.apiKey, answer)
    assert.deepEqual([row.status, Number(row.charged_atomic)], ['failed', charged])
    // A search that is not charged is still in the log.
    assert.equal(row.cost.search_calls, 1)
  })
}

for (const code of ['invalid_prompt', 'content_policy_violation', 'context_length_exceeded']) {
  for (const stream of [true, false]) {
    const form = stream ? 'streamed' : 'buffered'
    test(`the upstream refuses the round after a search with ${code}, ${form}: the round before it and the search are charged`, async () => {
      for (const isEvent of [true, false]) {
        suite.upstream.answer = inTurn([
          searching(),
          (exchange) => {
            if (isEvent) exchange.send(created, failedEvent(code))
            else exchange.outgoing.writeHead(400, { 'content-type': 'application/json' })
            exchange.outgoing.end(isEvent ? '' : JSON.stringify({ error: { code, message: 'No.' } }))
          },
        ])
        const answer = await postChat(suite.service, account.apiKey, { messages, stream })
        assert.match(await answer.text(), /"error":/)
        const row = await getRow(suite.service, account.apiKey, answer)
        assert.deepEqual([row.status, Number(row.charged_atomic)], ['failed', roundPrice + searchPrice])
        if (!stream) assert.equal(answer.headers.get('x-router-charged-usdc'), row.charged_atomic)
        assertAddsUp(row)
      }
    })
  }
}

test('after a crash a completed search is charged with the output that was checkpointed', async () => {
  const further = Promise.withResolvers<UpstreamExchange>()
  suite.upstream.answer = inTurn([
    [created, text('Let me look.'), ...functionCall('web_search', { query: 'penny' }, 1)],
    (exchange) => {
      exchange.send(created, text(' A penny is a coin.'))
      further.resolve(exchange)
    },
  ])
  const call = callChat(suite.service, account, { messages, stream: true })
  const { hungUp } = await further.promise
  const checkpoint = await untilCheckpointed()
  // Another node considers this node dead and ends its requests.
  await suite.service.database.query("update nodes set lease_until = '-infinity'")
  await endOrphanedHolds(suite.service.database, await openLedger(suite.service.database))
  const row = await endedRow(suite.service, account)
  call.leave()
  await hungUp
  assert.deepEqual([row.status, row.error?.code], ['failed', 'interrupted'])
  assert.deepEqual([row.cost.search_calls, row.cost.search_atomic], [1, String(searchPrice)])
  assert.equal(Number(row.charged_atomic), checkpoint.prompt + 5 * checkpoint.completion + searchPrice)
  assertAddsUp(row)

  /**
   * A checkpoint of both rounds: the reported usage of the first, and the counted usage of the second. The search's line is stored too.
   */
  async function untilCheckpointed() {
    for (;;) {
      const rows = await suite.service.database.query<{ prompt: number; completion: number }>(
        `select prompt_tokens as prompt, completion_tokens as completion from holds
          where account_id = $1 and prompt_tokens > 10 and completion_tokens > 5
            and tool_calls -> '1' ->> 'status' = 'completed'`,
        [account.id],
      )
      if (rows[0] !== undefined) return rows[0]
    }
  }
})

function assertAddsUp(row: RequestBody): void {
  assert.equal(BigInt(row.charged_atomic), costOfLines(row))
  assert.equal(BigInt(row.charged_atomic), BigInt(row.cost.inference_atomic) + BigInt(row.cost.search_atomic))
}

async function ask(body: object = {}): Promise<{ row: RequestBody; body: Completion; held: string | null }> {
  const answer = await postChat(suite.service, account.apiKey, { messages, ...body })
  assert.equal(answer.status, 200)
  const held = answer.headers.get('x-router-held-usdc')
  return { body: (await answer.json()) as Completion, row: await getRow(suite.service, account.apiKey, answer), held }
}

async function stream(body: object): Promise<{
  body: string
  row: RequestBody
  activities: readonly (Activity & { readonly reason?: string })[]
}> {
  const call = callChat(suite.service, account, { messages, stream: true, ...body })
  const frames = await allFrames(call)
  assert.equal(frames.at(-1), 'data: [DONE]')
  return {
    body: frames.map((frame) => chunkOf(frame)?.choices[0]?.delta.content ?? '').join(''),
    row: await getRow(suite.service, account.apiKey, (await call.answer).headers['x-router-request-id'] as string),
    activities: frames.flatMap((frame) => activityOf(frame) ?? []),
  }
}

async function quoteOf(body: object): Promise<bigint> {
  suite.upstream.answer = inTurn([[created, text('Hi')]])
  const answer = await postChat(suite.service, account.apiKey, { messages, ...body })
  return BigInt(answer.headers.get('x-router-held-usdc')!)
}

function activityOf(frame: string): Activity | undefined {
  return (chunkOf(frame) as { tool_activity?: Activity } | undefined)?.tool_activity
}

function outputsOf({ body }: UpstreamExchange): string[] {
  const { input } = body as { input: { type: string; output?: string }[] }
  return input.flatMap(({ type, output }) => (type === 'function_call_output' ? [output!] : []))
}
