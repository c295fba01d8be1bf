import type { FinishReason } from '../inference/chat-events.ts'
import { type AbsurdUsage, readUsage, type Usage } from '../inference/usage.ts'
import type { EndCall, Hold, RequestUsage } from '../ledger/hold-calls.ts'
import type { OrphanedHold } from '../ledger/nodes.ts'
import { cost } from '../money/price.ts'
import { fromAtomic, min, type Usdc, zero } from '../money/usdc.ts'
import { maxOutputTokensMin } from '../providers/model-request.ts'
import type { Bill, Round } from './bill.ts'
import type { HiddenReasoning } from './hidden-reasoning.ts'
import { framedTokens, inputTokensLimit } from './quote.ts'
import type { UpstreamUse } from './upstream-use.ts'

/** How serving a request ended, before it is priced. */
export type Outcome =
  | { readonly status: 'succeeded'; readonly finishReason: FinishReason }
  /** `isCustomersFault`: the upstream refused the customer's text. */
  | { readonly status: 'failed'; readonly errorCode: string; readonly isCustomersFault: boolean }
  | { readonly status: 'cancelled' }

export type Served = {
  readonly hold: Hold
  readonly stream: boolean
  readonly outcome: Outcome
  readonly bill: Bill
  /** The last round's usage, as the upstream reported it. Not validated yet. */
  readonly usage: unknown
  /** The last round was read to its end: its report, or the lack of one, says what it did. */
  readonly isWhole: boolean
  readonly upstream: UpstreamUse
}

export type ChargingParts = {
  /** The account is the one that pays. */
  readonly countTokens: (texts: readonly string[], account: string) => Promise<number>
  readonly hiddenReasoning: HiddenReasoning
  /** The tokenizer failed: the customer is not charged for uncounted output. */
  readonly onUncounted: (error: unknown, hold: Hold) => void
  /** The upstream reported an impossible usage: the operator should investigate. */
  readonly onRefusedUsage: (usage: Usage | AbsurdUsage, hold: Hold) => void
}

/** Computes the end call for the ledger. `docs/operations/charge.md` lists every ending; each row has a test. */
export async function chargeFor(served: Served, parts: ChargingParts): Promise<EndCall> {
  if (owesNothing(served)) return end(served, undefined, zero)
  const { bill } = served
  const usage = await totalUsage(served, parts)
  // The customer was quoted at most the limit: anything beyond it is the operator's loss.
  const charged = min(bill.costOf(usage), bill.limit)
  const ended = end(served, usage, charged)
  return isEarlyCancel(served) ? { ...ended, voided: undefined, errorCode: cancelAllowanceSpent } : ended
}

/** The error code of a cancelled request that was charged although it had no output yet. */
export const cancelAllowanceSpent = 'cancel_allowance_spent'

/**
 * A failure before output is free. A buffered answer that ends in an error delivered nothing, whatever the upstream wrote; a stream
 * owes what it delivered. If the upstream refuses the customer's own text after a finished round, that round and its searches are owed
 * as after a cancel: otherwise such a text would make them free. A client that disconnects before the request was sent owes nothing.
 */
function owesNothing({ outcome, bill, stream }: Served): boolean {
  if (outcome.status === 'succeeded') return false
  if (outcome.status === 'cancelled') return bill.finished === undefined && bill.sent === undefined
  if (outcome.isCustomersFault && bill.finished !== undefined) return false
  return !stream || !bill.outputStarted
}

/**
 * The client disconnected after the request was sent and before any output: free within the account's allowance. A finished round
 * counts as output, even an empty one: the model generated it, and its tool calls were shown as activity.
 */
function isEarlyCancel({ outcome, bill }: Served): boolean {
  return outcome.status === 'cancelled' && !bill.outputStarted && bill.finished === undefined
}

async function totalUsage(served: Served, parts: ChargingParts): Promise<RequestUsage> {
  const { bill } = served
  if (bill.finished !== undefined && !owesRound(served)) return bill.finished
  return bill.sum(await roundUsage(served, parts))
}

/** A later round that fails without output is free. A client that leaves it owes its input once it was sent. */
function owesRound({ outcome, bill }: Served): boolean {
  if (bill.round === undefined) return false
  if (outcome.status === 'cancelled') return bill.sent !== undefined
  return outcome.status === 'succeeded' || bill.roundStarted
}

/** The current round's billed usage. Never throws: a request must end, or its hold locks money forever. */
export async function roundUsage(served: ServedRound, parts: ChargingParts): Promise<RequestUsage> {
  return billedUsage(served, parts).catch((error: unknown) => {
    parts.onUncounted(error, served.hold)
    return uncounted
  })
}

type ServedRound = Pick<Served, 'hold' | 'bill' | 'usage' | 'isWhole' | 'upstream'>

async function billedUsage(served: ServedRound, parts: ChargingParts): Promise<RequestUsage> {
  const round = served.bill.round!
  const usage = readUsage(served.usage)
  if (usage === undefined) return countUsage(served, parts)
  if ('absurd' in usage || !isPlausible(usage, round)) {
    parts.onRefusedUsage(usage, served.hold)
    return countUsage(served, parts)
  }
  if (served.isWhole) parts.hiddenReasoning.learn(served.bill.seen, hiddenTokens(usage, served.bill))
  // The client asked for fewer tokens than the upstream's minimum: bill at most what it asked for.
  const completionTokens = Math.min(usage.completionTokens, round.maxTokens)
  const reasoningTokens = Math.min(usage.reasoningTokens, completionTokens)
  const output = { completionTokens, reasoningTokens }
  if (usage.promptTokens <= round.inputTokensMax) return { ...usage, ...output, source: 'upstream' }
  parts.onRefusedUsage(usage, served.hold)
  return { promptTokens: await countInput(served, parts), cachedTokens: 0, ...output, source: 'counted' }
}

/** The reasoning that a whole answer reports beyond what it shows. A text has at most as many tokens as bytes. */
function hiddenTokens({ reasoningTokens, completionTokens }: Usage, bill: Bill): number {
  if (bill.sealedBytes > 0) return reasoningTokens
  const shown = Buffer.byteLength(bill.reasoningText)
  const written = shown + Buffer.byteLength(bill.answerText)
  return Math.max(0, reasoningTokens - shown, completionTokens - written)
}

const uncounted: RequestUsage = {
  promptTokens: 0,
  completionTokens: 0,
  reasoningTokens: 0,
  cachedTokens: 0,
  source: 'counted',
}

/** The most that a server's own instructions and its chat template add to every input. */
const templateTokensMax = 4_096

/**
 * A report that cannot be true is not billed at all. Input above its bound can be true: another tokenizer makes more tokens than ours of
 * the same text, though never more than it has bytes, and a server adds text of its own. Then we count the input, because no round may
 * cost more than planned and unused output must not pay for input; the output is billed as reported.
 */
function isPlausible(usage: Usage, { input, inputTokensMax, maxTokens }: Round): boolean {
  if (usage.completionTokens > Math.max(maxTokens, maxOutputTokensMin)) return false
  // The bound includes the reasoning of earlier rounds, which is sent again and is not among the readable texts.
  return usage.promptTokens <= Math.max(inputTokensMax, inputTokensLimit(input)) + templateTokensMax
}

/** A lower bound: some servers report usage with their first chunk only, others with every chunk. */
function reportedSoFar(reported: unknown, round: Round): Pick<Usage, 'completionTokens' | 'reasoningTokens'> {
  const usage = readUsage(reported)
  if (usage === undefined || 'absurd' in usage || !isPlausible(usage, round)) return uncounted
  return usage
}

async function countInput({ hold, bill }: ServedRound, parts: ChargingParts): Promise<number> {
  const { input, inputTokensMax } = bill.round!
  const tokens = input.tokens ?? (await parts.countTokens(input.texts, hold.payer.accountId))
  return Math.min(framedTokens(tokens, input), inputTokensMax)
}

async function countUsage(served: ServedRound, parts: ChargingParts): Promise<RequestUsage> {
  const { hold, bill, upstream } = served
  const { accountId } = hold.payer
  const round = bill.round!
  const [promptTokens, answerTokens, summaryTokens] = await Promise.all([
    countInput(served, parts),
    parts.countTokens([bill.answerText], accountId),
    parts.countTokens([bill.reasoningText], accountId),
  ])
  const soFar = reportedSoFar(bill.reported, round)
  // A provider that reports nothing about a whole answer never tells what it reasoned: its next answers are not read on for a report.
  if (served.isWhole && served.usage === undefined && bill.sealedBytes === 0) parts.hiddenReasoning.learn(bill.seen, 0)
  // Most reasoning is never shown. Its summary is a lower bound; the size of the encrypted item is a better one.
  const estimate = parts.hiddenReasoning.estimate(bill.seen, summaryTokens)
  const reasoningTokens = Math.max(estimate, soFar.reasoningTokens)
  const writtenTokens = Math.max(answerTokens + reasoningTokens, soFar.completionTokens)
  const completionTokens = Math.min(writtenTokens, round.maxTokens)
  const usage: RequestUsage = {
    promptTokens,
    completionTokens,
    reasoningTokens: Math.min(reasoningTokens, completionTokens),
    cachedTokens: 0,
    source: 'counted',
  }
  upstream.counted(usage)
  return usage
}

function end({ hold, outcome, bill, upstream }: Served, usage: RequestUsage | undefined, charged: Usdc): EndCall {
  return {
    requestId: hold.requestId,
    payer: hold.payer,
    status: outcome.status,
    voided: usage === undefined,
    charged,
    searchCost: usage === undefined ? zero : bill.searchCost,
    searchCalls: bill.searchCalls,
    fetchCalls: bill.fetchCalls,
    usage,
    finishReason: outcome.status === 'succeeded' ? outcome.finishReason : undefined,
    errorCode: outcome.status === 'failed' ? outcome.errorCode : undefined,
    firstTokenMs: bill.firstTokenMs,
    totalMs: bill.totalMs,
    upstream: upstream.record,
  }
}

/**
 * The charge of a request whose node died: what its last checkpoint proves, plus the completed searches, or nothing. Without known
 * prices it is void: a charge that no price proves would freeze the ledger.
 */
export function chargeOrphan(orphan: OrphanedHold): EndCall {
  const { prices, quote, extended, searchCalls, fetchCalls } = orphan
  const checkpoint = prices && orphan.checkpoint
  const searchCost = checkpoint === undefined ? zero : fromAtomic(orphan.searchCost)
  const lines =
    checkpoint === undefined
      ? []
      : [
          { units: checkpoint.promptTokens, perMillion: prices!.inputPerMillion },
          { units: checkpoint.completionTokens, perMillion: prices!.outputPerMillion },
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
