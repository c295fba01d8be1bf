import { Bill } from '../billing/bill.ts'
import { chargeFor, type Outcome } from '../billing/charge.ts'
import { inputLine } from '../billing/quote.ts'
import { UpstreamUse } from '../billing/upstream-use.ts'
import { ServiceError } from '../errors.ts'
import type { ChatEvent, FinishReason } from '../inference/chat-events.ts'
import type { End, EndCall } from '../ledger/hold-calls.ts'
import { formatRequestId } from '../ledger/request-id.ts'
import { cost } from '../money/price.ts'
import { fromAtomic, min, type Usdc, zero } from '../money/usdc.ts'
import type { Observer } from '../observe/observer.ts'
import type { EndFacts } from '../observe/request-facts.ts'
import { failureError, isCustomersFault } from '../providers/upstream-errors.ts'
import type { AdmittedRequest } from './admit.ts'
import type { Attempt } from './attempts.ts'
import type { Checkpoints } from './checkpoints.ts'
import type { OpenRequests } from './open-requests.ts'
import type { AnswerEnd } from './recording.ts'
import { RunningCost } from './running-cost.ts'
import { answerInRounds, Leaving, type LoopParts, type Serving } from './tool-loop.ts'
import { UsageSoFar } from './usage-so-far.ts'

/** The receiver of the answer. */
export type Audience = {
  /**
   * Aborts when the client disconnects. When the service ends the request instead, the reason is the `ServiceError` that the client
   * gets.
   */
  readonly clientSignal: AbortSignal
  /** Resolves with the reason when the service ends the request, also after its client has left. */
  readonly stopped: Promise<unknown>
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
  | { readonly status: 'failed'; readonly failure: unknown; readonly charged: Usdc }
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
  const { clientSignal } = audience
  const leaving = new Leaving(bill, parts.charging.hiddenReasoning)
  const onLeft = () => leaving.left(clientSignal.reason, audience.stopped)
  if (clientSignal.aborted) onLeft()
  else clientSignal.addEventListener('abort', onLeft, { once: true })
  const waitForClient = () => audience.attempt?.waitForClient()
  const reached = await serve({ parts, admitted, bill, upstream, clientSignal, waitForClient, leaving }, listener)
  clientSignal.removeEventListener('abort', onLeft)
  cost.stop()
  unwatch()
  // No client is connected: output since the disconnect is not billed, unless it was read on for its report.
  const isReadOn = reached.outcome.status === 'cancelled' && reached.isWhole
  const left = isPaused() && !isReadOn ? billWhenLeft() : undefined
  // The round may have been sent while the attempt waited for a retry.
  if (bill.sent !== undefined && left?.sent === undefined) left?.noteSent(bill.sent)
  const served = left && !isStopped(clientSignal) ? cancelled : reached
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
  if (served.outcome.status === 'failed') return { status: 'failed', failure: served.failure, charged: end.charged }
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
  const { outcome } = served
  // Rounds and searches that ran for a retry that joined are owed, too.
  const owesRounds = outcome.status === 'failed' && outcome.isCustomersFault && bill.finished !== undefined
  if (cut === undefined || owesRounds) return { ...served, bill: bill.deliveredSnapshot() }
  return { ...served, bill: cut, usage: undefined, isWhole: false }
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
  const isSpared = charge.voided === undefined && charged === zero
  return {
    ...charge,
    voided: charge.voided ?? isSpared,
    ...(isSpared && { usage: undefined, errorCode: undefined }),
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
  /** The last round was read to its end. */
  readonly isWhole: boolean
  readonly failure: unknown
}

async function serve(serving: Serving, audience: Audience): Promise<ServingResult> {
  const { parts, bill, leaving } = serving
  let finish: Extract<ChatEvent, { readonly type: 'finish' }> | undefined
  try {
    for await (const events of answerInRounds(serving)) {
      const last = events.at(-1)
      if (last?.type === 'finish') finish = last
      if (leaving.readsOn) continue
      // A failure before any output is still an ordinary error response: send nothing ahead of it.
      if (last?.type !== 'failed' || bill.outputStarted) await audience.deliver(events)
      parts.failpoint('on_chunk')
      if (last?.type === 'failed') return failed(failureError(last), last.usage)
      if (finish !== undefined) {
        await audience.attempt?.waitForClient()
        const outcome = { status: 'succeeded', finishReason: finish.reason } as const
        return { outcome, usage: finish.usage, isWhole: true, failure: undefined }
      }
    }
    if (!leaving.readsOn) throw new Error('the upstream ended without a last event')
    return cancelledWith(finish)
  } catch (error) {
    const { clientSignal } = audience
    if (!clientSignal.aborted) return failed(error)
    // Only a disconnected client has cancelled. When we stop a request ourselves, that is our failure.
    if (isStopped(clientSignal)) return failed(clientSignal.reason)
    return leaving.readsOn ? cancelledWith(finish) : cancelled
  }
}

/** The service ended the request, not the client. */
function isStopped(clientSignal: AbortSignal): boolean {
  return clientSignal.reason instanceof ServiceError
}

const cancelled: ServingResult = {
  outcome: { status: 'cancelled' },
  usage: undefined,
  isWhole: false,
  failure: undefined,
}

/** The client left, and the answer was read on. Without its end, it is billed like one that was cut off. */
function cancelledWith(finish: { readonly usage?: unknown } | undefined): ServingResult {
  return { ...cancelled, usage: finish?.usage, isWhole: finish !== undefined }
}

function failed(error: unknown, usage?: unknown): ServingResult {
  const errorCode = error instanceof ServiceError ? error.code : 'internal_error'
  return {
    outcome: { status: 'failed', errorCode, isCustomersFault: isCustomersFault(error) },
    usage,
    isWhole: false,
    failure: error,
  }
}
