import { Bill } from '../billing/bill.ts'
import { chargeFor, type Outcome } from '../billing/charge.ts'
import { inputLine } from '../billing/quote.ts'
import { UpstreamUse } from '../billing/upstream-use.ts'
import { ServiceError } from '../errors.ts'
import type { ChatEvent, FinishReason } from '../inference/chat-events.ts'
import type { End, EndCall } from '../ledger/hold-calls.ts'
import { formatRequestId } from '../ledger/request-id.ts'
import { cost } from '../money/price.ts'
import { fromAtomic, min } from '../money/usdc.ts'
import type { Observer } from '../observe/observer.ts'
import type { EndFacts } from '../observe/request-facts.ts'
import { failureError } from '../providers/upstream-errors.ts'
import type { AdmittedRequest } from './admit.ts'
import type { Attempt } from './attempts.ts'
import type { Checkpoints } from './checkpoints.ts'
import type { OpenRequests } from './open-requests.ts'
import type { AnswerEnd } from './recording.ts'
import { RunningCost } from './running-cost.ts'
import { answerInRounds, type LoopParts, type Serving } from './tool-loop.ts'
import { UsageSoFar } from './usage-so-far.ts'

/** The receiver of the answer. */
export type Audience = {
  /**
   * Aborts when the client disconnects. When the service ends the request instead, the reason is the `ServiceError` that the client
   * gets.
   */
  readonly clientSignal: AbortSignal
  /** Resolves when no client can get the answer any more, not even by a retry. */
  unheard(): Promise<void>
  /** Delivers events as they arrive. A returned promise is backpressure: send no more until it resolves. */
  deliver(events: readonly ChatEvent[]): Promise<void> | undefined
  /** Retries can join this attempt after the client disconnects. */
  readonly attempt?: Attempt | undefined
  /** With `attempt`: aborts when the connection that `deliver` writes to closes, whether or not a retry waits for the answer. */
  readonly connectionSignal?: AbortSignal
}

export type ServingParts = LoopParts & {
  readonly checkpoints: Checkpoints
  readonly observer: Observer
  readonly openRequests: OpenRequests
  /** Monotonic milliseconds. */
  readonly now: () => number
}

/** A request that has ended in the ledger: its result is final. */
export type Completion =
  | { readonly status: 'succeeded'; readonly end: AnswerEnd }
  | { readonly status: 'failed'; readonly failure: unknown }
  | { readonly status: 'cancelled' }

/** One request after its hold: serve, meter, charge. The caller sends the last byte. */
export async function completeChat(
  parts: ServingParts,
  admitted: AdmittedRequest,
  audience: Audience,
): Promise<Completion> {
  const { stream } = admitted.chat
  const bill = new Bill(admitted, parts.now)
  const upstream = new UpstreamUse()
  const usage = new UsageSoFar(bill, parts.counting, admitted.sharesOf)
  const billWhenLeft = followLeaving(bill, audience.attempt)
  const billWhenCut = followConnection(bill, audience.connectionSignal)
  const isPaused = () => audience.attempt?.isAbandoned === true
  const isDelivered = () => stream && audience.connectionSignal?.aborted !== true
  const unwatch = parts.checkpoints.watch({ admitted, bill, usage, isPaused, isDelivered })
  using _open = parts.openRequests.begin(admitted.hold.payer.accountId, {
    quote: admitted.hold.quote,
    model: admitted.model.id,
  })
  const cost = new RunningCost({ usage, bill, now: parts.now, deliver: (events) => audience.deliver(events) })
  const listener = admitted.chat.includeCost ? withRunningCost(audience, cost, bill) : audience
  const reached = await serve({ parts, admitted, bill, upstream, clientSignal: audience.clientSignal }, listener)
  cost.stop()
  unwatch()
  // No client is connected: output since the disconnect is not billed.
  const left = isPaused() ? billWhenLeft() : undefined
  // The upstream may have accepted the request while the attempt waited for a retry.
  if (bill.accepted) left?.noteAccepted()
  const served = left && !isStopped(audience.clientSignal) ? cancelled : reached
  const billed =
    served.outcome.status === 'failed' ? deliveredOf(served, bill, billWhenCut()) : { ...served, bill: left ?? bill }
  const charge = await chargeFor({ hold: admitted.hold, stream, upstream, ...billed }, parts.charging)
  // The last byte of an answer is sent once its charge is certain. A client that got an error instead would retry, and pay twice.
  const end = await admitted.watch.during(
    'charge',
    () => parts.holds.end(charge, served.outcome.status === 'succeeded' ? audience.unheard : undefined),
    ({ status }) => status,
  )
  parts.observer.ended(admitted.watch, endFacts(admitted, charge, end, bill))
  if (served.outcome.status === 'cancelled') return { status: 'cancelled' }
  if (served.outcome.status === 'failed') return { status: 'failed', failure: served.failure }
  if (admitted.chat.includeCost) cost.sendCharge(end.charged, charge.usage!)
  return { status: 'succeeded', end: answerEnd(admitted, served.outcome, charge, end) }
}

/** Adds the running cost behind the client's output. */
function withRunningCost(audience: Audience, cost: RunningCost, bill: Bill): Audience {
  return {
    ...audience,
    deliver(events) {
      const drained = audience.deliver(events)
      if (bill.outputStarted) cost.tick()
      return drained
    },
  }
}

/** Keeps a snapshot of the bill each time the last client disconnects, so that output after it is not billed. */
function followLeaving(bill: Bill, attempt: Attempt | undefined): () => Bill | undefined {
  let left: Bill | undefined
  const take = () => {
    left = bill.snapshot()
  }
  if (attempt?.isAbandoned) take()
  if (attempt !== undefined) attempt.onAbandoned = take
  return () => left
}

/** A snapshot of the bill when the client's own connection closed: the output that was delivered. */
function followConnection(bill: Bill, connectionSignal: AbortSignal | undefined): () => Bill | undefined {
  let cut: Bill | undefined
  const take = () => {
    cut = bill.deliveredSnapshot()
  }
  if (connectionSignal?.aborted) take()
  else connectionSignal?.addEventListener('abort', take, { once: true })
  return () => cut
}

/**
 * A failed request owes what its client received: nothing that was held back, and nothing after its connection closed (`cut`).
 * Retries that joined the attempt receive nothing of it.
 */
function deliveredOf(
  served: ServingResult,
  bill: Bill,
  cut: Bill | undefined,
): ServingResult & { readonly bill: Bill } {
  return cut === undefined ? { ...served, bill: bill.deliveredSnapshot() } : { ...served, bill: cut, usage: undefined }
}

/** The ledger's result. It differs from ours when another node ended the request first. */
function answerEnd(
  { model }: AdmittedRequest,
  { finishReason }: { readonly finishReason: FinishReason },
  charge: EndCall,
  { charged }: End,
): AnswerEnd {
  const usage = charge.usage!
  const searchCost = min(charge.searchCost, charged)
  const inputCost = min(cost([inputLine(model, usage.promptTokens)]), fromAtomic(charged - searchCost))
  return { finishReason, usage, charged, searchCost, inputCost }
}

function endFacts(admitted: AdmittedRequest, charge: EndCall, { charged }: End, bill: Bill): EndFacts {
  const { hold, model, chat } = admitted
  return {
    ...charge,
    requestId: formatRequestId(admitted.requestId),
    accountId: hold.payer.accountId,
    keyId: hold.payer.keyId,
    model: model.id,
    stream: chat.stream,
    maxTokens: chat.maxTokens,
    quote: hold.quote,
    held: bill.limit,
    charged,
    searchCost: min(charge.searchCost, charged),
  }
}

type ServingResult = {
  readonly outcome: Outcome
  /** The last round's usage, as the upstream reported it. */
  readonly usage: unknown
  readonly failure: unknown
}

async function serve(serving: Serving, audience: Audience): Promise<ServingResult> {
  const { parts, bill } = serving
  try {
    for await (const events of answerInRounds(serving)) {
      const last = events.at(-1)
      // A failure before any output is still an ordinary error response: send nothing ahead of it.
      if (last?.type !== 'failed' || bill.outputStarted) await audience.deliver(events)
      parts.failpoint('on_chunk')
      if (last?.type === 'failed') return failed(failureError(last), last.usage)
      if (last?.type === 'finish') {
        await audience.attempt?.waitForClient()
        return { outcome: { status: 'succeeded', finishReason: last.reason }, usage: last.usage, failure: undefined }
      }
    }
    throw new Error('the upstream ended without a last event')
  } catch (error) {
    const { clientSignal } = audience
    if (!clientSignal.aborted) return failed(error)
    // Only a disconnected client has cancelled. When we stop a request ourselves, that is our failure.
    return isStopped(clientSignal) ? failed(clientSignal.reason) : cancelled
  }
}

/** The service ended the request, not the client. */
function isStopped(clientSignal: AbortSignal): boolean {
  return clientSignal.reason instanceof ServiceError
}

const cancelled: ServingResult = { outcome: { status: 'cancelled' }, usage: undefined, failure: undefined }

function failed(error: unknown, usage?: unknown): ServingResult {
  const errorCode = error instanceof ServiceError ? error.code : 'internal_error'
  return { outcome: { status: 'failed', errorCode }, usage, failure: error }
}
