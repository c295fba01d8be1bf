import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { type ChatEvent, nextParagraph } from '../inference/chat-events.ts'
import { fromAtomic } from '../money/usdc.ts'
import { Bill } from './bill.ts'
import { quote } from './quote.ts'

const searchPrice = 8_750n
const noInput = { texts: [], itemCount: 0 }
const price = fc.bigInt({ min: 1n, max: 30_000_000n })
const opened = fc
  .record({
    inputPerMillion: price,
    outputPerMillion: price,
    inputTokensMax: fc.nat(50_000),
    maxTokens: fc.integer({ min: 1, max: 64_000 }),
    share: fc.double({ min: 0, max: 1, noNaN: true }),
    searches: fc.nat(3),
  })
  .map(({ inputTokensMax, maxTokens, share, searches, ...prices }) => {
    const model = { id: 'm', contextLength: 400_000, maxOutputTokens: 64_000, ...prices }
    const terms = { model, quote: quote(model, inputTokensMax, maxTokens), searchPerCall: searchPrice, input: noInput }
    const bill = new Bill(terms, () => 0)
    bill.finishRound(usage(Math.floor(inputTokensMax * share), Math.floor(maxTokens * share)))
    for (let search = 0; search < searches; search += 1) {
      bill.extendTo(bill.extensionFor({ searches: 1, inputTokens: 0, outputTokens: 0 }) || bill.extended)
      bill.addSearch()
    }
    return bill
  })

const usage = (promptTokens: number, completionTokens: number) => ({
  promptTokens,
  completionTokens,
  reasoningTokens: 0,
  cachedTokens: 0,
  source: 'upstream' as const,
})

const costAfter = (bill: Bill, inputTokens: number, outputTokens: number) =>
  bill.costOf(bill.sum(usage(inputTokens, outputTokens)))

test('a round that writes all it may stays within the limit, and within the tokens that were asked for', () => {
  fc.assert(
    fc.property(opened, fc.nat(50_000), (bill, inputTokens) => {
      const affordable = bill.affordableOutput(inputTokens)
      assert.ok(affordable <= bill.tokensLeft)
      if (affordable > 0) assert.ok(costAfter(bill, inputTokens, affordable) <= bill.limit)
      // Nothing is left over either, except by rounding.
      if (affordable < bill.tokensLeft) assert.ok(costAfter(bill, inputTokens, affordable + 1) > bill.limit - 1n)
    }),
  )
})

test('truncated results leave room for the answer', () => {
  fc.assert(
    fc.property(opened, fc.nat(50_000), fc.nat(5_000), (bill, inputTokens, outputTokens) => {
      const more = bill.affordableInput(inputTokens, outputTokens)
      if (more > 0) assert.ok(costAfter(bill, inputTokens + more, outputTokens) <= bill.limit)
    }),
  )
})

test('an extension is the exact maximum cost of a step, and 0 when the hold covers it already', () => {
  fc.assert(
    fc.property(opened, fc.nat(3), fc.nat(50_000), fc.nat(5_000), (bill, searches, inputTokens, outputTokens) => {
      const before = bill.limit
      const total = bill.extensionFor({ searches, inputTokens, outputTokens })
      if (total > 0n) bill.extendTo(total)
      for (let search = 0; search < searches; search += 1) bill.addSearch()
      const needed = costAfter(bill, inputTokens, outputTokens)
      assert.equal(bill.limit, needed > before ? needed : before)
      assert.equal(bill.extensionFor({ searches: 0, inputTokens, outputTokens }), fromAtomic(0n))
    }),
  )
})

test('separators that we insert between messages or thoughts are not billed; the model’s own empty lines are', () => {
  const model = {
    id: 'm',

    contextLength: 400_000,
    maxOutputTokens: 64_000,
    inputPerMillion: 1n,
    outputPerMillion: 1n,
  }
  const bill = new Bill({ model, quote: quote(model, 10, 100), searchPerCall: searchPrice, input: noInput }, () => 0)
  const events: ChatEvent[] = [
    { type: 'reasoning', text: 'One' },
    nextParagraph('reasoning', 'Two'),
    { type: 'reasoning', text: '\n\nThree' },
    { type: 'text', text: 'Let me look.' },
    nextParagraph('text', 'The answer'),
    { type: 'text', text: '\n\nis 4.' },
  ]
  bill.addAll(events)
  assert.equal(bill.reasoningText, 'OneTwo\n\nThree')
  assert.equal(bill.answerText, 'Let me look.The answer\n\nis 4.')
})
