import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import { Bill } from '../billing/bill.ts'
import { HiddenReasoning } from '../billing/hidden-reasoning.ts'
import { quote } from '../billing/quote.ts'
import type { CheckpointCall } from '../ledger/hold-calls.ts'
import type { AdmittedRequest } from './admit.ts'
import { Checkpoints } from './checkpoints.ts'
import { UsageSoFar } from './usage-so-far.ts'

const model = { id: 'm', contextLength: 1_000, maxOutputTokens: 100, inputPerMillion: 1n, outputPerMillion: 5n }
const input = { texts: ['What is a penny?'], tokens: 4, itemCount: 1 }

/** A stream that has delivered some text. */
function streamOf(requestId: string, count: (texts: readonly string[]) => Promise<number>) {
  const bill = new Bill({ model, quote: quote(model, 20, 100), searchPerCall: 0n, input }, () => 0)
  bill.add({ type: 'text', text: 'A coin.' })
  const counting = { countTokens: count, hiddenReasoning: new HiddenReasoning() }
  return {
    admitted: { requestId, hold: { payer: { partition: 0 } } } as unknown as AdmittedRequest,
    bill,
    usage: new UsageSoFar(bill, counting, requestId),
    clients: { isAbandoned: false, isDelivered: true },
  }
}

test('a stream whose count takes long delays no checkpoint of the others, and is not counted twice meanwhile', async () => {
  mock.timers.enable({ apis: ['setInterval'] })
  const written: CheckpointCall[] = []
  const holds = { checkpoint: (call: CheckpointCall) => written.push(call) }
  const checkpoints = new Checkpoints({ holds: holds as never, everyMs: 1_000, onError: assert.ifError })
  const tick = async () => {
    mock.timers.tick(1_000)
    await new Promise(setImmediate)
  }
  try {
    let slowCounts = 0
    const slow = Promise.withResolvers<number>()
    checkpoints.watch(
      streamOf('slow', () => {
        slowCounts += 1
        return slow.promise
      }),
    )
    const other = streamOf('other', async ([text]) => (text === '' ? 0 : 1))
    checkpoints.watch(other)
    await tick()
    other.bill.add({ type: 'text', text: ' Of copper.' })
    await tick()
    assert.deepEqual(
      written.map(({ requestId, completionTokens }) => [requestId, completionTokens]),
      [
        ['other', 1],
        ['other', 2],
      ],
    )
    assert.equal(slowCounts, 1)
    slow.resolve(1)
    await tick()
    assert.equal(written.at(-1)?.requestId, 'slow')
  } finally {
    checkpoints.stop()
    mock.timers.reset()
  }
})
