import type { FinishReason } from '../inference/responses-events.ts'
import { maxOutputTokensMin } from '../inference/responses-request.ts'
import { type AbsurdUsage, readUsage, type Usage } from '../inference/usage.ts'
import type { EndCall, Hold, RequestUsage } from '../ledger/holds.ts'
import type { OrphanedHold } from '../ledger/nodes.ts'
import { cost } from '../money/price.ts'
import { fromAtomic, min, type Usdc, zero } from '../money/usdc.ts'
import type { Meter } from './meter.ts'
import type { Model } from './price-list.ts'
import { type InputText, inputLine, outputLine, type Quote } from './quote.ts'

/** How serving a request ended, before anybody has said what it costs. */
export type Outcome =
  | { readonly status: 'succeeded'; readonly finishReason: FinishReason }
  | { readonly status: 'failed'; readonly errorCode: string }
  | { readonly status: 'cancelled' }

export type Served = {
  readonly hold: Hold
  readonly quote: Quote
  readonly model: Model
  readonly stream: boolean
  readonly input: InputText
  readonly outcome: Outcome
  readonly meter: Meter
  /** As the upstream reported it: nothing is known of it yet. */
  readonly usage: unknown
}

export type ChargingTools = {
  readonly countTokens: (texts: readonly string[]) => Promise<number>
  /** The tokenizer failed: the customer is not charged for what nobody could count. */
  readonly onUncounted: (error: unknown, hold: Hold) => void
  /** An upstream whose usage cannot be true is the operator's to look into. */
  readonly onRefusedUsage: (usage: Usage | AbsurdUsage, hold: Hold) => void
}

/** What the ledger is told. `docs/operations/charge.md` has the table of every ending; each row of it has a test. */
export async function chargeFor(served: Served, tools: ChargingTools): Promise<EndCall> {
  if (owesNothing(served)) return end(served, undefined, zero)
  // Whatever fails here, the request must end: a hold that stays open locks the customer's money.
  const usage = await billedUsage(served, tools).catch((error: unknown) => {
    tools.onUncounted(error, served.hold)
    return uncounted
  })
  const lines = [inputLine(served.model, usage.promptTokens), outputLine(served.model, usage.completionTokens)]
  // The customer was promised at most the quote: whatever goes beyond it is the operator's loss.
  return end(served, usage, min(cost(lines), served.hold.quote))
}

/**
 * Without output nothing is owed. A buffered answer that ends in an error delivered nothing, whatever the upstream wrote;
 * a stream delivered what it delivered.
 */
function owesNothing({ outcome, meter, stream }: Served): boolean {
  if (outcome.status === 'succeeded') return false
  return !meter.outputStarted || (outcome.status === 'failed' && !stream)
}

async function billedUsage(served: Served, tools: ChargingTools): Promise<RequestUsage> {
  const usage = readUsage(served.usage)
  if (usage === undefined) return countUsage(served, tools)
  if ('absurd' in usage || !fits(usage, served)) {
    tools.onRefusedUsage(usage, served.hold)
    return countUsage(served, tools)
  }
  // Asked for fewer than the upstream's minimum: billed on the asked count.
  const completionTokens = Math.min(usage.completionTokens, served.quote.maxTokens)
  const reasoningTokens = Math.min(usage.reasoningTokens, completionTokens)
  return { ...usage, completionTokens, reasoningTokens, source: 'upstream' }
}

const uncounted: RequestUsage = {
  promptTokens: 0,
  completionTokens: 0,
  reasoningTokens: 0,
  cachedTokens: 0,
  source: 'counted',
}

function fits(usage: Usage, { model, hold, quote }: Served): boolean {
  if (usage.completionTokens > Math.max(quote.maxTokens, maxOutputTokensMin)) return false
  const billable = Math.min(usage.completionTokens, quote.maxTokens)
  return cost([inputLine(model, usage.promptTokens), outputLine(model, billable)]) <= hold.quote
}

// The framing of a message, as the reference's own counting recipe has it.
const itemTokens = 3
const replyTokens = 3

async function countUsage({ input, meter, quote }: Served, tools: ChargingTools): Promise<RequestUsage> {
  const [inputTokens, answerTokens, reasoningTokens] = await Promise.all([
    tools.countTokens(input.texts),
    tools.countTokens([meter.answerText]),
    tools.countTokens([meter.reasoningText]),
  ])
  const completionTokens = Math.min(answerTokens + reasoningTokens, quote.maxTokens)
  return {
    promptTokens: Math.min(inputTokens + itemTokens * input.itemCount + replyTokens, quote.inputTokensMax),
    completionTokens,
    reasoningTokens: Math.min(reasoningTokens, completionTokens),
    cachedTokens: 0,
    source: 'counted',
  }
}

function end({ hold, outcome, meter }: Served, usage: RequestUsage | undefined, charged: Usdc): EndCall {
  return {
    requestId: hold.requestId,
    payer: hold.payer,
    status: outcome.status,
    voided: usage === undefined,
    charged: fromAtomic(charged),
    searchCost: zero,
    searchCalls: 0,
    fetchCalls: 0,
    usage,
    finishReason: outcome.status === 'succeeded' ? outcome.finishReason : undefined,
    errorCode: outcome.status === 'failed' ? outcome.errorCode : undefined,
    firstTokenMs: meter.firstTokenMs,
    totalMs: meter.totalMs,
  }
}

/** What a request owes whose node died: what its last checkpoint proves and the searches that ran, or nothing. */
export function chargeOrphan(orphan: OrphanedHold): EndCall {
  const { checkpoint, quote, extended, searchCalls, fetchCalls } = orphan
  const searchCost = checkpoint === undefined ? zero : fromAtomic(orphan.searchCost)
  const lines =
    checkpoint === undefined
      ? []
      : [
          { units: checkpoint.promptTokens, perMillion: orphan.inputPerMillion },
          { units: checkpoint.completionTokens, perMillion: orphan.outputPerMillion },
        ]
  return {
    requestId: orphan.requestId,
    payer: orphan,
    status: 'failed',
    voided: checkpoint === undefined,
    charged: min(fromAtomic(cost(lines) + searchCost), fromAtomic(quote + extended)),
    searchCost,
    searchCalls,
    fetchCalls,
    usage: checkpoint && { ...checkpoint, reasoningTokens: 0, cachedTokens: 0, source: 'counted' },
    finishReason: undefined,
    errorCode: 'interrupted',
    firstTokenMs: undefined,
    totalMs: orphan.ageMs,
  }
}
