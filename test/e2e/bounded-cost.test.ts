import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import fc from 'fast-check'
import { type Answered, type ModelServer, startModelServer } from '../../sandbox/model/server.ts'
import { assertBooksClosed } from '../support/audit.ts'
import { exampleCount } from '../support/examples.ts'
import { startScriptedWeb } from '../support/scripted-web.ts'
import {
  costOfLines,
  getRow,
  postChat,
  startTestService,
  type TestAccount,
  type TestService,
} from '../support/service.ts'

// Random questions to a model that is fond of tools, counts honestly and writes as much as it may. BOUNDED_RUNS=10000 for the
// long form; fast-check prints the seed of a failure.

const runs = exampleCount('BOUNDED_RUNS', { short: 25, full: 100, all: 200 })
const atOnce = 10

/** How many rounds each request took, by the key of its prompts. */
const rounds = new Map<string, number>()
let model: ModelServer
let service: TestService
before(async () => {
  const onAnswered = ({ promptCacheKey = '' }: Answered) =>
    rounds.set(promptCacheKey, (rounds.get(promptCacheKey) ?? 0) + 1)
  model = await startModelServer({ host: '127.0.0.1', port: 0, tokensPerSecond: 0, onAnswered })
  const web = startScriptedWeb()
  // The address says how long the page is and of what it is made.
  web.page = (url) => {
    const { searchParams } = new URL(url)
    const kind = kinds[Number(searchParams.get('kind'))]!
    return { url, title: 'A page', text: kind.repeat(Number(searchParams.get('words'))), truncated: false }
  }
  // Ten concurrent requests are quoted at two USDC if all of them use the expensive model and long answers.
  service = await startTestService({
    upstreamUrl: model.url,
    web: web.tools,
    environment: { IN_FLIGHT_CAP_USDC: '10' },
  })
})
after(async () => {
  try {
    await assertBooksClosed(service.database)
  } finally {
    await service.stop()
    await model.close()
  }
})

const kinds = ['penny ', 'аршин ', '硬币', '🪙', '0x1f9a ', '\n', 'aaaaaaaa']

const page = fc.record({ kind: fc.nat(kinds.length - 1), words: fc.nat(3_000) })
const fetches = fc.oneof(
  { weight: 4, arbitrary: page.map(({ kind, words }) => fetching(`https://example.com/?kind=${kind}&words=${words}`)) },
  { weight: 1, arbitrary: fc.constant(fetching('https://elsewhere.example/')) },
)
const searches = fc.constant('[sandbox:call web_search {"query":"penny"}]')

const questionOf = (call: fc.Arbitrary<string>) =>
  fc.record({
    model: fc.constantFrom('gpt-5.6-terra', 'gpt-5.6-terra', 'gpt-6-astra'),
    reasoning_effort: fc.constantFrom('none', 'low', 'high'),
    max_tokens: fc.oneof(
      { weight: 1, arbitrary: fc.integer({ min: 1, max: 400 }) },
      { weight: 4, arbitrary: fc.integer({ min: 400, max: 8_000 }) },
    ),
    parallel: fc.boolean(),
    padding: fc.nat(200),
    rounds: fc.array(fc.array(call, { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 9, size: 'max' }),
    tokens: fc.nat(800),
    stream: fc.boolean(),
  })
type Question = ReturnType<typeof questionOf> extends fc.Arbitrary<infer Value> ? Value : never

function fetching(url: string): string {
  return `[sandbox:call web_fetch ${JSON.stringify({ url })}]`
}

test(`with search off no request of ${runs} costs more than its quote, and none of them had to be given for less`, async (t) => {
  await overQuestions(runs, questionOf(fetches), async (asked, account) => {
    const row = await ask(account, asked, { web_search: false })
    assert.ok(BigInt(row.charged_atomic) <= BigInt(row.quote_atomic))
    assert.deepEqual([row.extended_atomic, row.cost.search_atomic], ['0', '0'])
  })
  const several = [...rounds.values()].filter((count) => count > 1).length
  t.diagnostic(`${several} of ${rounds.size} requests took several rounds`)
  assert.ok(rounds.size >= runs && several > rounds.size / 2)
})

// Short prompts, and pages about as long as what the quote leaves for them: here the bound of the page and that of its round must agree.
test('with search off the answer to a page is never lost, whatever max_tokens are and however long the page is', async () => {
  const account = await service.openAccount('25')
  const pages = [0, 1].flatMap((kind) => [400, 700].map((words) => ({ kind, words })))
  const lost: string[] = []
  for (const { kind, words } of pages) {
    const url = `https://example.com/?kind=${kind}&words=${words}`
    const content = `Summarise ${url} [sandbox:round 1]${fetching(url)}[sandbox:round 2][sandbox:tokens 20]`
    const sizes = Array.from({ length: 24 }, (_, index) => 250 + 25 * index)
    const answers = sizes.map(async (max_tokens) => {
      const messages = [{ role: 'user', content }]
      const answer = await postChat(service, account.apiKey, { max_tokens, web_search: false, messages })
      const { choices } = (await answer.json()) as {
        choices: [{ message: { content: string }; finish_reason: string }]
      }
      if (choices[0].message.content === '') lost.push(`${max_tokens} tokens, ${words} of ${kinds[kind]}`)
    })
    await Promise.all(answers)
  }
  assert.deepEqual(lost, [])
})

test('with search on, and money for some of it only, no request costs more than was held for it', async () => {
  await overQuestions(Math.ceil(runs / 5), questionOf(fc.oneof(fetches, searches)), async (asked, rich) => {
    const { quote_atomic } = await ask(rich, { ...asked, rounds: [] }, {})
    const poor = await service.openAccount(`0.${String(Number(quote_atomic) + 12_000).padStart(6, '0')}`)
    const row = await ask(poor, asked, {})
    assert.ok(BigInt(row.charged_atomic) <= BigInt(row.quote_atomic) + BigInt(row.extended_atomic))
  })
})

async function overQuestions(
  count: number,
  question: fc.Arbitrary<Question>,
  check: (asked: Question, account: TestAccount) => Promise<void>,
): Promise<void> {
  const batch = fc.array(question, { minLength: atOnce, maxLength: atOnce })
  await fc.assert(
    fc.asyncProperty(batch, async (all) => {
      const account = await service.openAccount('25')
      await Promise.all(all.map((asked) => check(asked, account)))
    }),
    { numRuns: Math.ceil(count / atOnce), endOnFailure: true },
  )
}

/** The charge is the real cost to the atomic unit. If a limit had reduced it, the operator would have paid the difference. */
async function ask(account: TestAccount, asked: Question, tools: object) {
  const { rounds, padding, tokens, parallel, ...parameters } = asked
  const script = rounds.map((calls, index) => `[sandbox:round ${index + 1}]${calls.join('')}`).join('')
  const urls = rounds.flat().flatMap((each) => /https:\/\/example\.com[^"]*/.exec(each)?.[0] ?? [])
  const content = `${'Please. '.repeat(padding)}${urls.join(' ')}${script}[sandbox:round ${rounds.length + 1}][sandbox:tokens ${tokens}]`
  const body = { ...parameters, ...tools, parallel_tool_calls: parallel, messages: [{ role: 'user', content }] }
  const answer = await postChat(service, account.apiKey, body)
  const text = await answer.text()
  assert.equal(answer.status, 200, text)
  const row = await getRow(service, account.apiKey, answer)
  assert.deepEqual([row.status, row.usage?.source], ['succeeded', 'upstream'])
  assert.equal(BigInt(row.charged_atomic), costOfLines(row))
  return row
}
