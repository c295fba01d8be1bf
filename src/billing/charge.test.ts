import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { OrphanedHold } from '../ledger/nodes.ts'
import { Bill } from './bill.ts'
import { type ChargingParts, chargeFor, chargeOrphan, type Served } from './charge.ts'
import { HiddenReasoning } from './hidden-reasoning.ts'
import { quote } from './quote.ts'
import { UpstreamUse } from './upstream-use.ts'

// Input costs 1 atomic unit a token, output 5. Our tokenizer counts the words of a text.

const model = {
  id: 'm',
  contextLength: 400_000,
  maxOutputTokens: 64_000,
  inputPerMillion: 1_000_000n,
  outputPerMillion: 5_000_000n,
}
const words = 10_000
const input = { texts: ['penny '.repeat(words)], itemCount: 1 }
/** With the framing of one message and of the answer. */
const countedInput = words + 6
const inputTokensMax = 11_040

/** A search costs 100. */
function opened(bound = inputTokensMax, maxTokens = 100): Bill {
  return new Bill({ model, quote: quote(model, bound, maxTokens), searchPerCall: 100n, input }, () => 0)
}

function answered(bound = inputTokensMax, maxTokens = 100): Bill {
  const bill = opened(bound, maxTokens)
  bill.add({ type: 'text', text: 'one two three' })
  return bill
}

function charge(served: Pick<Served, 'stream' | 'outcome' | 'bill' | 'usage' | 'isWhole'>, onRefusedUsage = () => {}) {
  const parts: ChargingParts = {
    countTokens: async (texts) => texts.flatMap((text) => text.split(' ').filter((word) => word !== '')).length,
    hiddenReasoning: new HiddenReasoning(),
    onUncounted: (error) => assert.fail(String(error)),
    onRefusedUsage,
  }
  const hold = { payer: {} } as Parameters<typeof chargeFor>[0]['hold']
  return chargeFor({ hold, upstream: new UpstreamUse(), ...served }, parts)
}

/** The billed usage of an answer with this report, and how often a report was rejected. */
async function billed(
  reported: { readonly input_tokens: number; readonly output_tokens: number },
  bound = inputTokensMax,
  maxTokens = 100,
) {
  let refusals = 0
  const { usage, charged } = await charge(
    {
      stream: true,
      outcome: { status: 'succeeded', finishReason: 'stop' },
      bill: answered(bound, maxTokens),
      usage: reported,
      isWhole: true,
    },
    () => {
      refusals += 1
    },
  )
  return [usage?.promptTokens, usage?.completionTokens, usage?.source, charged, refusals]
}

const failed = { status: 'failed', errorCode: 'upstream_error', isCustomersFault: false } as const
const cancelled = { status: 'cancelled' } as const
const output = 5 * 3
const endings = [
  {
    title: 'a stream that fails after output owes it',
    stream: true,
    outcome: failed,
    bill: answered,
    tokens: countedInput + output,
  },
  { title: 'a stream that fails before output owes nothing', stream: true, outcome: failed, bill: sent, tokens: 0 },
  {
    title: 'a buffered answer that fails owes nothing, whatever was written',
    stream: false,
    outcome: failed,
    bill: answered,
    tokens: 0,
  },
  {
    title: 'a client that leaves before the request is sent owes nothing',
    stream: true,
    outcome: cancelled,
    bill: opened,
    tokens: 0,
  },
  {
    title: 'a client that leaves after that owes the input',
    stream: true,
    outcome: cancelled,
    bill: sent,
    tokens: countedInput,
  },
  {
    title: 'a client that leaves during the answer owes it',
    stream: false,
    outcome: cancelled,
    bill: answeredAfterSending,
    tokens: countedInput + output,
  },
]
for (const { title, stream, outcome, bill: open, tokens } of endings) {
  test(`${title}, and its searches likewise`, async () => {
    const bill = open()
    bill.addSearch()
    const { voided, charged, searchCost } = await charge({ stream, outcome, bill, usage: undefined, isWhole: false })
    const searches = tokens === 0 ? 0n : 100n
    assert.deepEqual([charged, searchCost], [BigInt(tokens) + searches, searches])
    // Of an early cancel the ledger decides: it may be within the account's allowance.
    if (tokens !== countedInput) assert.equal(voided, tokens === 0)
  })
}

function sent(): Bill {
  const bill = opened()
  bill.noteSent({ provider: 'first', effort: 'none', sealsReasoning: false })
  return bill
}

function answeredAfterSending(): Bill {
  const bill = sent()
  bill.add({ type: 'text', text: 'one two three' })
  return bill
}

test('a client that asks for fewer tokens than the upstream’s minimum pays for at most what it asked for', async () => {
  const [bound, maxTokens] = [inputTokensMax, 10]
  assert.deepEqual(await billed({ input_tokens: 100, output_tokens: 16 }, bound, maxTokens), [
    100,
    10,
    'upstream',
    BigInt(100 + 5 * 10),
    0,
  ])
})

test('a request whose node died owes what its last checkpoint proves, and its searches', () => {
  const orphan = {
    quote: 100_000n,
    extended: 0n,
    searchCost: 10_000n,
    searchCalls: 1,
    fetchCalls: 0,
    prices: model,
    ageMs: 1,
  }
  const charged = (more: object) => chargeOrphan({ ...orphan, ...more } as unknown as OrphanedHold).charged
  assert.equal(charged({ checkpoint: { promptTokens: 100, completionTokens: 10 } }), 10_150n)
  assert.equal(charged({ checkpoint: { promptTokens: 100_000, completionTokens: 10 } }), 100_000n)
  assert.equal(charged({ checkpoint: undefined }), 0n)
})

test('input above its bound is counted by us; the reported output is billed', async () => {
  assert.deepEqual(await billed({ input_tokens: inputTokensMax, output_tokens: 80 }), [
    inputTokensMax,
    80,
    'upstream',
    BigInt(inputTokensMax + 5 * 80),
    0,
  ])
  // As a server with another tokenizer reports it.
  assert.deepEqual(await billed({ input_tokens: 20_000, output_tokens: 80 }), [
    countedInput,
    80,
    'counted',
    BigInt(countedInput + 5 * 80),
    1,
  ])
})

test('reasoning that is sent again is part of the input, although it is not among its texts', async () => {
  const [bound, reported] = [80_000, 70_000]
  assert.deepEqual(await billed({ input_tokens: reported, output_tokens: 80 }, bound), [
    reported,
    80,
    'upstream',
    BigInt(reported + 5 * 80),
    0,
  ])
})

test('the output is billed as reported, although the server adds instructions of its own to the input', async () => {
  const reported = { input_tokens: 6 * words + 40 + 4_096, output_tokens: 80 }
  assert.deepEqual(await billed(reported), [countedInput, 80, 'counted', BigInt(countedInput + 5 * 80), 1])
})

test('a report of more input than it can have, or of more output than was asked for, is not billed at all', async () => {
  const counted = [countedInput, 3, 'counted', BigInt(countedInput + 5 * 3), 1]
  assert.deepEqual(await billed({ input_tokens: 6 * words + 41 + 4_096, output_tokens: 80 }), counted)
  assert.deepEqual(await billed({ input_tokens: 20_000, output_tokens: 101 }), counted)
  assert.deepEqual(await billed({ input_tokens: 10, output_tokens: 101 }), counted)
})

test('an answer that another tokenizer counts as half as long is not cut', () => {
  const bill = answered()
  bill.noteCounted(2 * 100)
  assert.equal(bill.overflowed, false)
  bill.noteCounted(2 * 100 + 257)
  assert.equal(bill.overflowed, true)
})
