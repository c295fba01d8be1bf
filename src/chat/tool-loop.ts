import { type ChargingParts, roundUsage } from '../billing/charge.ts'
import type { Meter } from '../billing/meter.ts'
import { furtherRoundsMax } from '../billing/quote.ts'
import type { Tab } from '../billing/tab.ts'
import type { Failpoint } from '../failpoints.ts'
import type { ChatEvent } from '../inference/chat-events.ts'
import { createOutputCut } from '../inference/cut-output.ts'
import type { ResponsesRequest } from '../inference/responses-request.ts'
import type { Upstream } from '../inference/upstream.ts'
import type { Phase } from '../observe/request-watch.ts'
import type { Order } from './admit.ts'
import { type PendingResult, planRound, type RoundPlan, type RoundWish } from './plan-round.ts'
import { type RoundEnd, RoundReader } from './round-reader.ts'
import { type DeskParts, ToolDesk } from './tool-desk.ts'

export type LoopParts = DeskParts & {
  readonly upstream: Upstream
  readonly charging: ChargingParts
  readonly failpoint: Failpoint
}

/** Whoever counts along: what was said, and what it comes to. */
export type Bill = { readonly meter: Meter; readonly tab: Tab }

/** Every search and every page in a round of its own, and one to answer in. */
const roundsMax = 1 + furtherRoundsMax

/**
 * The answer to an order. When the model calls one of our tools the call is run here and the model is asked again, with the
 * result, until it answers, calls a tool of the client's, or there is nothing left to spend. It yields what the client gets;
 * the last event is the end.
 */
export async function* answerInRounds(
  parts: LoopParts,
  order: Order,
  bill: Bill,
  gone: AbortSignal,
): AsyncGenerator<readonly ChatEvent[], void, undefined> {
  const told = { rounds: 0, textLength: 0, hasReasoning: false }
  let desk: ToolDesk | undefined
  let plan: Pick<RoundPlan, 'request' | 'items' | 'isLast'> | undefined = {
    request: order.upstreamRequest,
    items: [],
    isLast: order.offer.size === 0,
  }
  while (plan !== undefined) {
    // Where JSON was asked for, text before a tool call would be a second document: until the round has ended none is shown.
    const holdsText = !plan.isLast && order.chat.responseFormat.type !== 'text'
    const reader = new RoundReader(bill.meter, order.offer, told, holdsText)
    const asking = order.watch.begin('upstream')
    let shown: readonly ChatEvent[] = []
    try {
      for await (const events of await askUpstream(parts, order, plan.request, asking, gone)) {
        shown = reader.take(events)
        if (reader.end !== undefined) break
        if (shown.length > 0) yield shown
      }
    } finally {
      order.watch.end(asking, outcomeOf(reader, gone))
      // Who leaves in the middle of an answer pays for what was written of it, held or not.
      if (gone.aborted && reader.end === undefined) reader.release()
    }
    if (reader.end === undefined) throw new Error('the upstream ended without a last event')
    if (reader.pendingCalls.length === 0 || plan.isLast) {
      return yield [...shown, ...reader.release(), ...citations(desk, reader), endOf(reader, reader.end)]
    }
    if (shown.length > 0) yield shown
    desk ??= new ToolDesk(parts, order, bill.tab, gone)
    const results = yield* runCalls(parts, order, bill, desk, reader)
    const wish = {
      items: [...plan.items, ...reader.items],
      results,
      isLast: desk.closed || told.rounds >= roundsMax - 1,
    }
    plan = await beginRound(parts, order, bill, desk, wish)
  }
  // Nothing is left to answer with. What was found is lost on the customer, but not one unit beyond the limit is spent.
  yield [{ type: 'finish', reason: 'length' }]
}

/** How a question to the upstream went, for the metrics. */
function outcomeOf({ end }: RoundReader, gone: AbortSignal): string {
  if (end !== undefined) return end.type === 'finish' ? 'succeeded' : 'failed'
  return gone.aborted ? 'cancelled' : 'failed'
}

/** What the upstream answers, cut where the client asked for fewer tokens than the upstream's minimum. */
async function askUpstream(
  parts: LoopParts,
  { chat, watch }: Order,
  request: ResponsesRequest,
  asking: Phase,
  gone: AbortSignal,
): Promise<AsyncIterable<readonly ChatEvent[]>> {
  parts.failpoint('before_upstream_write')
  const answer = await parts.upstream.respond(request, gone, watch.headersOf(asking))
  return chat.maxTokens >= request.max_output_tokens ? answer : cutAnswer(answer, chat.maxTokens, parts)
}

async function* cutAnswer(
  answer: AsyncIterable<readonly ChatEvent[]>,
  tokensMax: number,
  { charging }: LoopParts,
): AsyncGenerator<readonly ChatEvent[], void, undefined> {
  const cut = createOutputCut(tokensMax, (text) => charging.countTokens([text]))
  for await (const events of answer) yield await cut.push(events)
}

/** Closes the books of a round and runs what it called, one call after the other: each may need money that is not held yet. */
async function* runCalls(
  parts: LoopParts,
  { hold }: Order,
  { meter, tab }: Bill,
  desk: ToolDesk,
  { pendingCalls, end }: RoundReader,
): AsyncGenerator<readonly ChatEvent[], readonly PendingResult[], undefined> {
  const { inputTokensMax } = tab.round!
  const usage = await roundUsage({ hold, meter, tab, usage: end?.usage }, parts.charging)
  tab.finishRound(usage)
  const results: PendingResult[] = []
  for (const call of pendingCalls) {
    const result = yield* desk.run(call, inputTokensMax + usage.completionTokens)
    results.push({ callId: call.id, result })
  }
  return results
}

async function beginRound(
  parts: LoopParts,
  order: Order,
  { meter, tab }: Bill,
  desk: ToolDesk,
  wish: RoundWish,
): Promise<RoundPlan | undefined> {
  const plan = await planRound(order, tab, desk, wish, parts.charging.countTokens)
  if (plan === undefined) return undefined
  tab.beginRound(plan.round)
  meter.beginRound(plan.round.maxTokens)
  return plan
}

/** The pages that the answer refers to, where they came from one of our tools. */
function citations(desk: ToolDesk | undefined, { text, textStart }: RoundReader): readonly ChatEvent[] {
  const found = desk?.sources.citationsIn(text, textStart) ?? []
  return found.map((annotation) => ({ type: 'annotation', annotation }))
}

/** A model that goes on calling our tools when it may not any more has nothing else to say: that is its end. */
function endOf({ pendingCalls }: RoundReader, end: RoundEnd): ChatEvent {
  return end.type === 'finish' && pendingCalls.length > 0 ? { ...end, reason: 'stop' } : end
}
