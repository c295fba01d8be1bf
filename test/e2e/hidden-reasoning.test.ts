import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { endOrphanedHolds } from '../../src/jobs/end-orphaned-holds.ts'
import { callChat, endedRow, framesOf } from '../support/chat-client.ts'
import { openLedger } from '../support/ledger.ts'
import { answers, completed, created, text, type UpstreamExchange } from '../support/scripted-upstream.ts'
import { getRow, postChat, type RequestBody, type TestAccount, withoutTools } from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'

// Reasoning that is never shown is billed by the upstream's usage, and where the answer was cut by the size of the sealed item. Prices
// of the default model: 1 atomic unit for a token of input, 5 for one of output. "What is a penny?" is 11 tokens with its framing.

const suite = serviceSuite({ CHECKPOINT_MS: '20' })
let account: TestAccount
beforeEach(async () => {
  account = await suite.service.openAccount('25')
})

const messages = [{ role: 'user', content: 'What is a penny?' }]
const question = { messages, stream: true, max_tokens: 60_000, reasoning_effort: 'xhigh', ...withoutTools }
const input = 11
const envelope = 512

/** A finished item of reasoning: so many sealed bytes beside its envelope, and a summary. */
function sealed(bytes: number, summary = '', output_index = 0): object[] {
  const id = `rs_${output_index}`
  const item = {
    type: 'reasoning',
    id,
    summary: summary === '' ? [] : [{ type: 'summary_text', text: summary }],
    encrypted_content: 'A'.repeat(envelope + bytes),
  }
  return [{ type: 'response.output_item.done', output_index, item }]
}

/** Sends events, waits until the client has the last word of them, and lets it leave. */
async function leaveAfter(events: readonly object[], body: object = {}): Promise<RequestBody> {
  suite.upstream.answer = (exchange) => exchange.send(created, ...events, text(' END'))
  const call = callChat(suite.service, account, { ...question, ...body })
  for await (const frame of framesOf(await call.answer)) if (frame.includes(' END')) break
  call.leave()
  return endedRow(suite.service, account)
}

test('an answer that is read to its marker and left pays for the reasoning behind it: a token for ten sealed bytes', async () => {
  const row = await leaveAfter(sealed(200_000, 'one two three four'))
  assert.deepEqual([row.status, row.usage?.source], ['cancelled', 'counted'])
  assert.equal(row.usage?.reasoning_tokens, 20_000)
  assert.equal(Number(row.charged_atomic), input + 5 * (20_000 + 1))
})

test('several items of reasoning add up', async () => {
  const row = await leaveAfter([...sealed(30_000), ...sealed(50_000, '', 1)])
  assert.equal(row.usage?.reasoning_tokens, 8_000)
})

test('a summary that is longer than the estimate is what is billed, and an empty seal is nothing', async () => {
  const summary = await leaveAfter(sealed(30, 'one two three four'))
  assert.equal(summary.usage?.reasoning_tokens, 4)
  account = await suite.service.openAccount('25')
  assert.equal((await leaveAfter(sealed(-200))).usage?.reasoning_tokens, 0)
})

test('the estimate never passes max_tokens, nor the charge the hold', async () => {
  const row = await leaveAfter(sealed(4_000_000), { max_tokens: 1_000 })
  assert.deepEqual([row.usage?.completion_tokens, Number(row.charged_atomic)], [1_000, input + 5 * 1_000])
  assert.ok(Number(row.charged_atomic) <= Number(row.held_atomic))
})

test('whole answers teach what a sealed byte of their model is worth, and pay what the upstream reports', async () => {
  const usage = { input_tokens: 10, output_tokens: 2_003, output_tokens_details: { reasoning_tokens: 2_000 } }
  suite.upstream.answer = answers(created, ...sealed(10_000), text('A coin'), completed(usage))
  const model = 'gpt-5.6-luna'
  for (let answer = 0; answer < 8; answer += 1) {
    const response = await postChat(suite.service, account.apiKey, { ...question, model, stream: false })
    const row = await getRow(suite.service, account.apiKey, response)
    assert.deepEqual([row.usage?.source, Number(row.charged_atomic)], ['upstream', 10 + 5 * 2_003])
  }
  account = await suite.service.openAccount('25')
  assert.equal((await leaveAfter(sealed(50_000), { model })).usage?.reasoning_tokens, 10_000)
})

// The last: it takes the node's lease away.
test('after a crash the last checkpoint has the reasoning that was sealed before it', async () => {
  const begun = Promise.withResolvers<UpstreamExchange>()
  suite.upstream.answer = (exchange) => {
    exchange.send(created, ...sealed(100_000), text('A coin'))
    begun.resolve(exchange)
  }
  const call = callChat(suite.service, account, question)
  const { hungUp } = await begun.promise
  const tokens = await untilCheckpointed()
  await suite.service.database.query("update nodes set lease_until = '-infinity'")
  await endOrphanedHolds(suite.service.database, await openLedger(suite.service.database))
  const row = await endedRow(suite.service, account)
  call.leave()
  await hungUp
  assert.equal(tokens.completion, 10_000 + 2)
  assert.deepEqual([row.status, row.error?.code], ['failed', 'interrupted'])
  assert.equal(Number(row.charged_atomic), tokens.prompt + 5 * tokens.completion)

  async function untilCheckpointed() {
    for (;;) {
      const [row] = await suite.service.database.query<{ prompt: number; completion: number }>(
        `select prompt_tokens as prompt, completion_tokens as completion from holds
          where account_id = $1 and prompt_tokens is not null`,
        [account.id],
      )
      if (row !== undefined) return row
    }
  }
})
