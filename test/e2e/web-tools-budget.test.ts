import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { allFrames, callChat, chunkOf, endedRow, framesOf } from '../support/chat-client.ts'
import {
  created,
  functionCall,
  inTurn,
  reasoning,
  type Turn,
  text,
  type UpstreamExchange,
} from '../support/scripted-upstream.ts'
import { failsToFetch, failsToSearch, pennyResult, startScriptedWeb } from '../support/scripted-web.ts'
import { getRow, postChat, type RequestBody, type TestAccount } from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'

// What calls of our tools cost when the client leaves, and when tokens or money are short. Prices of the default model: 1 atomic
// unit for a token of input, 5 for one of output; a search is 8,750. A scripted round reports 10 tokens of input and 5 of output.

const searchPrice = 8_750
const roundPrice = 10 + 5 * 5

const web = startScriptedWeb()
const suite = serviceSuite({}, undefined, web.tools)
let account: TestAccount
beforeEach(async () => {
  web.forget()
  account = await suite.service.openAccount('25')
})

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
  // Nor does the quote leave enough for a second round: the answer ends here.
  assert.deepEqual([web.urls, Number(row.charged_atomic), row.finish_reason], [[], roundPrice, 'length'])
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
