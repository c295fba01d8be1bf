import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { ChatEvent } from '../inference/chat-events.ts'
import { fromAtomic } from '../money/usdc.ts'
import { RunningCost } from './running-cost.ts'
import type { TokenCount } from './usage-so-far.ts'

const counted = { promptTokens: 10, completionTokens: 1 }
const charge = { promptTokens: 10, completionTokens: 12 }

function open() {
  const sent: ChatEvent[] = []
  const count = Promise.withResolvers<TokenCount | undefined>()
  const cost = new RunningCost({
    usage: { read: () => count.promise },
    bill: { costOf: ({ completionTokens }) => fromAtomic(BigInt(completionTokens)), limit: fromAtomic(100n) },
    now: () => 0,
    deliver: (events) => sent.push(...events),
  })
  return { sent, count, cost }
}

test('a stream whose first output was counted gets that cost, and not the charge again', async () => {
  const { sent, count, cost } = open()
  cost.tick()
  count.resolve(counted)
  await count.promise
  await null
  cost.stop()
  cost.sendCharge(fromAtomic(12n), charge)
  assert.deepEqual(sent, [{ type: 'cost', cost: 1n, ...counted }])
})

test('a stream that is over before its first count gets its charge, once', async () => {
  const { sent, count, cost } = open()
  cost.tick()
  cost.stop()
  cost.sendCharge(fromAtomic(12n), charge)
  count.resolve(counted)
  await count.promise
  await null
  assert.deepEqual(sent, [{ type: 'cost', cost: 12n, ...charge }])
})
