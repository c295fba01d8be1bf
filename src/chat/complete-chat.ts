import { type ChargingTools, chargeFor, type Outcome } from '../billing/charge.ts'
import { Meter } from '../billing/meter.ts'
import { ServiceError } from '../errors.ts'
import type { Failpoint } from '../failpoints.ts'
import { createOutputCut } from '../inference/cut-output.ts'
import type { ChatEvent, FinishReason } from '../inference/responses-events.ts'
import { failureError, type Upstream } from '../inference/upstream.ts'
import type { End, EndCall, Holds } from '../ledger/holds.ts'
import { min } from '../money/usdc.ts'
import type { Order } from './admit.ts'
import type { Checkpoints } from './checkpoints.ts'
import type { AnswerEnd } from './recording.ts'

/** Who the answer is for. */
export type Audience = {
  /** Aborts when the client has left. */
  readonly gone: AbortSignal
  /** Takes events as they come; a promise means: no more until it resolves. */
  deliver(events: readonly ChatEvent[]): Promise<void> | undefined
}

export type ServingTools = {
  readonly upstream: Upstream
  readonly holds: Holds
  readonly charging: ChargingTools
  readonly checkpoints: Checkpoints
  /** Monotonic milliseconds. */
  readonly now: () => number
  readonly failpoint: Failpoint
}

/** A request that has ended in the ledger: what is told to the client now is final. */
export type Completion =
  | { readonly status: 'succeeded'; readonly end: AnswerEnd }
  | { readonly status: 'failed'; readonly failure: unknown }
  | { readonly status: 'cancelled' }

/** The story of one request after its hold: serve, meter, charge. The caller sends the last byte. */
export async function completeChat(tools: ServingTools, order: Order, audience: Audience): Promise<Completion> {
  const meter = new Meter(tools.now, order.quote.maxTokens)
  const unwatch = order.chat.stream ? tools.checkpoints.watch(order, meter) : undefined
  const served = await serve(tools, order, audience, meter)
  unwatch?.()
  const charge = await chargeFor({ ...order, stream: order.chat.stream, meter, ...served }, tools.charging)
  // A stream has delivered what it charges. A buffered answer has not: it is given when the charge is certain, or never.
  const end = await tools.holds.end(charge, order.chat.stream ? undefined : audience.gone)
  if (served.outcome.status === 'cancelled') return { status: 'cancelled' }
  if (served.outcome.status === 'failed') return { status: 'failed', failure: served.failure }
  return { status: 'succeeded', end: answerEnd(served.outcome, charge, end) }
}

/** What the ledger says, which is not what was asked of it when another node had ended the request before. */
function answerEnd(
  { finishReason }: { readonly finishReason: FinishReason },
  charge: EndCall,
  { charged }: End,
): AnswerEnd {
  return { finishReason, usage: charge.usage!, charged, searchCost: min(charge.searchCost, charged) }
}

type Serving = {
  readonly outcome: Outcome
  /** As the upstream reported it. */
  readonly usage: unknown
  readonly failure: unknown
}

async function serve(tools: ServingTools, order: Order, audience: Audience, meter: Meter): Promise<Serving> {
  try {
    for await (const events of answerEvents(tools, order, audience.gone)) {
      meter.see(events)
      const last = events.at(-1)
      // Before any output a failure is still an ordinary error response: nothing may be sent ahead of it.
      if (last?.type !== 'failed' || meter.outputStarted) await audience.deliver(events)
      tools.failpoint('on_chunk')
      if (meter.overflowed)
        return { outcome: { status: 'succeeded', finishReason: 'length' }, usage: undefined, failure: undefined }
      if (last?.type === 'failed') return failed(failureError(last), last.usage)
      if (last?.type === 'finish') {
        return { outcome: { status: 'succeeded', finishReason: last.reason }, usage: last.usage, failure: undefined }
      }
    }
    throw new Error('the upstream ended without a last event')
  } catch (error) {
    return audience.gone.aborted
      ? { outcome: { status: 'cancelled' }, usage: undefined, failure: error }
      : failed(error)
  }
}

function failed(error: unknown, usage?: unknown): Serving {
  const errorCode = error instanceof ServiceError ? error.code : 'internal_error'
  return { outcome: { status: 'failed', errorCode }, usage, failure: error }
}

/** What the upstream answers, cut where the client asked for fewer tokens than the upstream's minimum. */
async function* answerEvents(
  tools: ServingTools,
  { upstreamRequest, chat }: Order,
  gone: AbortSignal,
): AsyncIterable<readonly ChatEvent[]> {
  tools.failpoint('before_upstream_write')
  const answer = await tools.upstream.respond(upstreamRequest, gone)
  if (chat.maxTokens >= upstreamRequest.max_output_tokens) return yield* answer
  const cut = createOutputCut(chat.maxTokens, (text) => tools.charging.countTokens([text]))
  for await (const events of answer) yield await cut.push(events)
}
