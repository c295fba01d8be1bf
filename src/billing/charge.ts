import type { FinishReason } from '../inference/chat-events.ts'
import { maxOutputTokensMin } from '../inference/responses-request.ts'
import { type AbsurdUsage, readUsage, type Usage } from '../inference/usage.ts'
import type { EndCall, Hold, RequestUsage } from '../ledger/hold-calls.ts'
import type { OrphanedHold } from '../ledger/nodes.ts'
import { cost } from '../money/price.ts'
import { fromAtomic, min, type Usdc, zero } from '../money/usdc.ts'
import type { CancelAllowance } from './cancel-allowance.ts'
import type { HiddenReasoning } from './hidden-reasoning.ts'
import type { Meter } from './meter.ts'
import type { Round, Tab } from './tab.ts'

/** How serving a request ended, before anybody has said what it costs. */
export type Outcome =
  | { readonly status: 'succeeded'; readonly finishReason: FinishReason }
  | { readonly status: 'failed'; readonly errorCode: string }
  | { readonly status: 'cancelled' }

export type Served = {
  readonly hold: Hold
  readonly stream: boolean
  readonly outcome: Outcome
  readonly meter: Meter
  readonly tab: Tab
  /** Of the last round, as the upstream reported it: nothing is known of it yet. */
  readonly usage: unknown
}

export type ChargingParts = {
  readonly countTokens: (texts: readonly string[]) => Promise<number>
  readonly hiddenReasoning: HiddenReasoning
  readonly cancelAllowance: CancelAllowance
  /** The tokenizer failed: the customer is not charged for what nobody could count. */
  readonly onUncounted: (error: unknown, hold: Hold) => void
  /** An upstream whose usage cannot be true is the operator's to look into. */
  readonly onRefusedUsage: (usage: Usage | AbsurdUsage, hold: Hold) => void
}

/** What the ledger is told. `docs/operations/charge.md` has the table of every ending; each row of it has a test. */
export async function chargeFor(served: Served, parts: ChargingParts): Promise<EndCall> {
  if (owesNothing(served)) return end(served, undefined, zero)
  const { tab, hold } = served
  const usage = await totalUsage(served, parts)
  // The customer was promised at most the limit: whatever goes beyond it is the operator's loss.
  const charged = min(tab.costOf(usage), tab.limit)
  if (!isEarlyCancel(served)) return end(served, usage, charged)
  if (parts.cancelAllowance.take(hold.payer.accountId, charged)) return end(served, undefined, zero)
  return { ...end(served, usage, charged), errorCode: cancelAllowanceSpent }
}

/** The code of a cancelled request that was charged although it had no output yet. */
export const cancelAllowanceSpent = 'cancel_allowance_spent'

/**
 * A failure owes nothing before output. A buffered answer that ends in an error delivered nothing, whatever the upstream wrote; a
 * stream delivered what it delivered. A client that leaves owes nothing before the upstream has the request.
 */
function owesNothing({ outcome, meter, stream }: Served): boolean {
  if (outcome.status === 'succeeded') return false
  if (outcome.status === 'failed') return !stream || !meter.outputStarted
  return !meter.accepted
}

/**
 * The client left after the upstream had accepted and before it got anything: free as a rule, but bounded. A finished round is
 * something, also without output: the model has generated it, and its tool calls were shown as activity.
 */
function isEarlyCancel({ outcome, meter, tab }: Served): boolean {
  return outcome.status === 'cancelled' && !meter.outputStarted && tab.finished === undefined
}

async function totalUsage(served: Served, parts: ChargingParts): Promise<RequestUsage> {
  const { tab, meter, outcome } = served
  // A further round that had not begun to answer when the request broke off has given nothing for its input.
  const unanswered = outcome.status !== 'succeeded' && !meter.roundStarted
  if (tab.finished !== undefined && (tab.round === undefined || unanswered)) return tab.finished
  return tab.sum(await roundUsage(served, parts))
}

/** What the round that is being written is billed. Never fails: a request must end, or its hold locks money for ever. */
export async function roundUsage(served: ServedRound, parts: ChargingParts): Promise<RequestUsage> {
  return billedUsage(served, parts).catch((error: unknown) => {
    parts.onUncounted(error, served.hold)
    return uncounted
  })
}

type ServedRound = Pick<Served, 'hold' | 'meter' | 'tab' | 'usage'>

async function billedUsage(served: ServedRound, parts: ChargingParts): Promise<RequestUsage> {
  const round = served.tab.round!
  const usage = readUsage(served.usage)
  if (usage === undefined) return countUsage(served, parts)
  if ('absurd' in usage || !fits(usage, round)) {
    parts.onRefusedUsage(usage, served.hold)
    return countUsage(served, parts)
  }
  parts.hiddenReasoning.learn(served.tab.modelId, served.meter.sealedBytes, usage.reasoningTokens)
  // Asked for fewer than the upstream's minimum: billed on the asked count.
  const completionTokens = Math.min(usage.completionTokens, round.maxTokens)
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

/**
 * No round may cost more than it was planned to: what it takes too much would be missing for the next. Input and output are each
 * bounded: unused output must not pay for input above its bound, or the same input had two prices.
 */
function fits(usage: Usage, { inputTokensMax, maxTokens }: Round): boolean {
  if (usage.completionTokens > Math.max(maxTokens, maxOutputTokensMin)) return false
  return usage.promptTokens <= inputTokensMax
}

// The framing of a message, as the reference's own counting recipe has it.
const itemTokens = 3
const replyTokens = 3

async function countUsage({ meter, tab }: ServedRound, parts: ChargingParts): Promise<RequestUsage> {
  const { input, inputTokensMax, maxTokens } = tab.round!
  const [inputTokens, answerTokens, summaryTokens] = await Promise.all([
    parts.countTokens(input.texts),
    parts.countTokens([meter.answerText]),
    parts.countTokens([meter.reasoningText]),
  ])
  // Most of the reasoning is never shown: its summary is the least that it was, the size of its seal tells more.
  const reasoningTokens = Math.max(summaryTokens, parts.hiddenReasoning.estimate(tab.modelId, meter.sealedBytes))
  const completionTokens = Math.min(answerTokens + reasoningTokens, maxTokens)
  return {
    promptTokens: Math.min(inputTokens + itemTokens * input.itemCount + replyTokens, inputTokensMax),
    completionTokens,
    reasoningTokens: Math.min(reasoningTokens, completionTokens),
    cachedTokens: 0,
    source: 'counted',
  }
}

function end({ hold, outcome, meter, tab }: Served, usage: RequestUsage | undefined, charged: Usdc): EndCall {
  return {
    requestId: hold.requestId,
    payer: hold.payer,
    status: outcome.status,
    voided: usage === undefined,
    charged,
    searchCost: usage === undefined ? zero : tab.searchCost,
    searchCalls: tab.searchCalls,
    fetchCalls: tab.fetchCalls,
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
