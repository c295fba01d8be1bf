import type { Payer } from '../../src/ledger/hold-calls.ts'
import type { Holds } from '../../src/ledger/holds.ts'
import { createRequestId } from '../../src/ledger/request-id.ts'
import { fromAtomic, zero } from '../../src/money/usdc.ts'

// One account with 512 requests at once stays below the cap of 1.00 USDC only with quotes of at most 1,953 units.
const quote = fromAtomic(1_900n)
const charged = fromAtomic(200n)

/** All that a request is to the ledger. */
export async function holdAndEnd(holds: Holds, payer: Payer): Promise<void> {
  const requestId = createRequestId(payer.partition, Date.now())
  const decision = await holds.place({ requestId, payer, quote, model: 'gpt-5.6-terra', stream: false, maxTokens: 300 })
  if ('refusal' in decision) throw new Error(`the bench was refused: ${decision.refusal.code}`)
  await holds.end({
    requestId,
    payer,
    status: 'succeeded',
    voided: false,
    charged,
    searchCost: zero,
    searchCalls: 0,
    fetchCalls: 0,
    usage: { promptTokens: 100, completionTokens: 20, reasoningTokens: 0, cachedTokens: 0, source: 'upstream' },
    finishReason: 'stop',
    errorCode: undefined,
    firstTokenMs: 10,
    totalMs: 20,
  })
}
