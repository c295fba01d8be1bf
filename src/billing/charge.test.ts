import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Bill } from './bill.ts'
import { type ChargingParts, chargeFor } from './charge.ts'
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

function answered(bound = inputTokensMax): Bill {
  const bill = new Bill({ model, quote: quote(model, bound, 100), searchPerCall: 0n, input }, () => 0)
  bill.add({ type: 'text', text: 'one two three' })
  return bill
}

/** The billed usage of an answer with this report, and how often a report was rejected. */
async function billed(
  reported: { readonly input_tokens: number; readonly output_tokens: number },
  bound = inputTokensMax,
) {
  let refusals = 0
  const parts: ChargingParts = {
    countTokens: async (texts) => texts.flatMap((text) => text.split(' ').filter((word) => word !== '')).length,
    hiddenReasoning: new HiddenReasoning(),
    onUncounted: (error) => assert.fail(String(error)),
    onRefusedUsage: () => {
      refusals += 1
    },
  }
  const { usage, charged } = await chargeFor(
    {
      hold: { payer: {} } as Parameters<typeof chargeFor>[0]['hold'],
      stream: true,
      outcome: { status: 'succeeded', finishReason: 'stop' },
      bill: answered(bound),
      usage: reported,
      isWhole: true,
      upstream: new UpstreamUse(),
    },
    parts,
  )
  return [usage?.promptTokens, usage?.completionTokens, usage?.source, charged, refusals]
}

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
