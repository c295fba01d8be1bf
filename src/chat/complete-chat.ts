import { chargeFor, type Outcome } from '../billing/charge.ts'
import { Meter } from '../billing/meter.ts'
import { inputLine } from '../billing/quote.ts'
import { Tab } from '../billing/tab.ts'
import { ServiceError } from '../errors.ts'
import type { ChatEvent, FinishReason } from '../inference/chat-events.ts'
import { failureError } from '../inference/upstream.ts'
import type { End, EndCall } from '../ledger/hold-calls.ts'
import { formatRequestId } from '../ledger/request-id.ts'
import { cost } from '../money/price.ts'
import { fromAtomic, min } from '../money/usdc.ts'
import type { Observer } from '../observe/observer.ts'
import type { EndFacts } from '../observe/request-facts.ts'
import type { Order } from './admit.ts'
import type { Attempt } from './attempts.ts'
import type { Checkpoints } from './checkpoints.ts'
import type { OpenRequests } from './open-requests.ts'
import type { AnswerEnd } from './recording.ts'
import { RunningCost } from './running-cost.ts'
import { answerInRounds, type Bill, type LoopParts } from './tool-loop.ts'
import { type CountingParts, UsageSoFar } from './usage-so-far.ts'

/** Who the answer is for. */
export type Audience = {
  /** Aborts when the client has left; with a refusal as its reason when the client has not, and is to be told that. */
  readonly gone: AbortSignal
  /** Takes events as they come; a promise means: no more until it resolves. */
  deliver(events: readonly ChatEvent[]): Promise<void> | undefined
  /** Where retries can join: a client that leaves may come back. */
  readonly attempt?: Attempt | undefined
}

export type ServingParts = LoopParts & {
  readonly checkpoints: Checkpoints
  readonly observer: Observer
  /** For streams that go on: what they have come to is counted behind what is being charged. */
  readonly counting: CountingParts
  readonly openRequests: OpenRequests
  /** Monotonic milliseconds. */
  readonly now: () => number
}

/** A request that has ended in the ledger: what is told to the client now is final. */
export type Completion =
  | { readonly status: 'succeeded'; readonly end: AnswerEnd }
  | { readonly status: 'failed'; readonly failure: unknown }
  | { readonly status: 'cancelled' }

/** The story of one request after its hold: serve, meter, charge. The caller sends the last byte. */
export async function completeChat(parts: ServingParts, order: Order, audience: Audience): Promise<Completion> {
  const { stream } = order.chat
  const meter = new Meter(parts.now, order.quote.maxTokens)
  const tab = new Tab(order.model, order.quote, order.searchPerCall, order.input)
  const usage = new UsageSoFar(meter, tab, parts.counting)
  const billWhenLeft = followLeaving({ meter, tab }, audience.attempt)
  const isPaused = () => audience.attempt?.isAbandoned === true
  const unwatch = stream ? parts.checkpoints.watch(order, meter, usage, isPaused) : undefined
  using _open = parts.openRequests.begin(order.hold.payer.accountId, { quote: order.hold.quote, model: order.model.id })
  const cost = new RunningCost({ usage, tab, now: parts.now, deliver: (events) => audience.deliver(events) })
  const listener = order.chat.includeCost ? tellingCost(audience, cost, meter) : audience
  const reached = await serve(parts, order, listener, { meter, tab })
  cost.stop()
  unwatch?.()
  // Nobody waits: whatever the attempt came to since the client left is not billed.
  const left = isPaused() ? billWhenLeft() : undefined
  const served = left && !isStopped(audience.gone) ? cancelled : reached
  const charge = await chargeFor({ hold: order.hold, stream, meter, tab, ...left, ...served }, parts.charging)
  // A stream has delivered what it charges. A buffered answer has not: it is given when the charge is certain, or never.
  const end = await order.watch.during(
    'charge',
    () => parts.holds.end(charge, stream ? undefined : audience.gone),
    ({ status }) => status,
  )
  parts.observer.ended(order.watch, endFacts(order, charge, end, tab))
  if (served.outcome.status === 'cancelled') return { status: 'cancelled' }
  if (served.outcome.status === 'failed') return { status: 'failed', failure: served.failure }
  return { status: 'succeeded', end: answerEnd(order, served.outcome, charge, end) }
}

/** The same client, which is told the cost so far behind its output. */
function tellingCost(audience: Audience, cost: RunningCost, meter: Meter): Audience {
  return {
    ...audience,
    deliver(events) {
      const drained = audience.deliver(events)
      if (meter.outputStarted) cost.tick()
      return drained
    },
  }
}

/** Keeps what was metered each time the last client left. */
function followLeaving({ meter, tab }: Bill, attempt: Attempt | undefined): () => Bill | undefined {
  let left: Bill | undefined
  const take = () => {
    left = { meter: meter.snapshot(), tab: tab.snapshot() }
  }
  if (attempt?.isAbandoned) take()
  if (attempt !== undefined) attempt.onAbandoned = take
  return () => left
}

/** What the ledger says, which is not what was asked of it when another node had ended the request before. */
function answerEnd(
  { model }: Order,
  { finishReason }: { readonly finishReason: FinishReason },
  charge: EndCall,
  { charged }: End,
): AnswerEnd {
  const usage = charge.usage!
  const searchCost = min(charge.searchCost, charged)
  const inputCost = min(cost([inputLine(model, usage.promptTokens)]), fromAtomic(charged - searchCost))
  return { finishReason, usage, charged, searchCost, inputCost }
}

function endFacts(order: Order, charge: EndCall, { charged }: End, tab: Tab): EndFacts {
  const { hold, model, chat } = order
  return {
    ...charge,
    requestId: formatRequestId(order.requestId),
    accountId: hold.payer.accountId,
    keyId: hold.payer.keyId,
    model: model.id,
    stream: chat.stream,
    maxTokens: chat.maxTokens,
    quote: hold.quote,
    held: tab.limit,
    charged,
    searchCost: min(charge.searchCost, charged),
  }
}

type Serving = {
  readonly outcome: Outcome
  /** Of the last round, as the upstream reported it. */
  readonly usage: unknown
  readonly failure: unknown
}

async function serve(parts: ServingParts, order: Order, audience: Audience, bill: Bill): Promise<Serving> {
  const { meter } = bill
  try {
    for await (const events of answerInRounds(parts, order, bill, audience.gone)) {
      const last = events.at(-1)
      // Before any output a failure is still an ordinary error response: nothing may be sent ahead of it.
      if (last?.type !== 'failed' || meter.outputStarted) await audience.deliver(events)
      parts.failpoint('on_chunk')
      if (meter.overflowed)
        return { outcome: { status: 'succeeded', finishReason: 'length' }, usage: undefined, failure: undefined }
      if (last?.type === 'failed') return failed(failureError(last), last.usage)
      if (last?.type === 'finish') {
        await audience.attempt?.waitForClient()
        return { outcome: { status: 'succeeded', finishReason: last.reason }, usage: last.usage, failure: undefined }
      }
    }
    throw new Error('the upstream ended without a last event')
  } catch (error) {
    return brokenOff(error, audience.gone)
  }
}

/** Only a client that has left has cancelled: what we stop ourselves is a failure of ours. */
function brokenOff(error: unknown, gone: AbortSignal): Serving {
  if (!gone.aborted) return failed(error)
  return isStopped(gone) ? failed(gone.reason) : cancelled
}

/** The service ended it, not the client. */
function isStopped(gone: AbortSignal): boolean {
  return gone.reason instanceof ServiceError
}

const cancelled: Serving = { outcome: { status: 'cancelled' }, usage: undefined, failure: undefined }

function failed(error: unknown, usage?: unknown): Serving {
  const errorCode = error instanceof ServiceError ? error.code : 'internal_error'
  return { outcome: { status: 'failed', errorCode }, usage, failure: error }
}
