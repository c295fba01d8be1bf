import type { Bill } from '../billing/bill.ts'
import { type ChargingParts, roundUsage } from '../billing/charge.ts'
import type { HiddenReasoning } from '../billing/hidden-reasoning.ts'
import { furtherRoundsMax } from '../billing/quote.ts'
import type { UpstreamUse } from '../billing/upstream-use.ts'
import { ServiceError } from '../errors.ts'
import type { ChatEvent } from '../inference/chat-events.ts'
import { createOutputCut, type OutputCut } from '../inference/cut-output.ts'
import type { Phase } from '../observe/request-watch.ts'
import type { Failpoint } from '../process/failpoints.ts'
import type { ModelRequest } from '../providers/model-request.ts'
import type { AttemptWatch, RoutedAnswer, Router } from '../providers/router.ts'
import type { AdmittedRequest } from './admit.ts'
import { countEachOnce, type PendingResult, planRound, type RoundPlan } from './plan-round.ts'
import { type RoundEnd, RoundReader } from './round-reader.ts'
import { ToolRunner, type ToolRunnerParts } from './tool-runner.ts'
import type { CountingParts } from './usage-so-far.ts'

export type LoopParts = ToolRunnerParts & {
  readonly router: Router
  readonly charging: ChargingParts
  /** Counts running requests at a lower priority than requests that are being charged. */
  readonly counting: CountingParts
  readonly failpoint: Failpoint
}

/**
 * Ends the upstream's work when the client leaves. Where only the upstream's report tells how much it has reasoned, and the report comes
 * last, the answer is read on instead, without its client.
 */
export class Leaving {
  readonly #stop = new AbortController()
  readonly #bill: Bill
  readonly #hiddenReasoning: HiddenReasoning
  #readsOn = false

  constructor(bill: Bill, hiddenReasoning: HiddenReasoning) {
    this.#bill = bill
    this.#hiddenReasoning = hiddenReasoning
  }

  /** For the upstream. */
  get signal(): AbortSignal {
    return this.#stop.signal
  }

  /** The client has left, and the round is read to its end. */
  get readsOn(): boolean {
    return this.#readsOn
  }

  /** Call when the client's signal aborts. `stopped` resolves when the service ends requests whose clients have left. */
  left(reason: unknown, stopped: Promise<unknown>): void {
    this.#readsOn = !(reason instanceof ServiceError) && this.#hiddenReasoning.needsReport(this.#bill.seen)
    if (this.#readsOn) void stopped.then((why) => this.#stop.abort(why))
    else this.#stop.abort(reason)
  }
}

/** One admitted request while it is served. */
export type Serving = {
  readonly parts: LoopParts
  readonly admitted: AdmittedRequest
  readonly bill: Bill
  readonly upstream: UpstreamUse
  /** Aborts when the client disconnects. */
  readonly clientSignal: AbortSignal
  /** Resolves when a client waits for the answer; rejects when the request is cancelled. */
  readonly waitForClient: () => Promise<void> | undefined
  readonly leaving: Leaving
}

/** One round for every search and page, and one for the answer. */
const roundsMax = 1 + furtherRoundsMax

/**
 * Answers an admitted request. Runs the model's calls of our tools and asks the model again with the results, until it answers,
 * calls a tool of the client's, or the money is spent. Yields the client's events; the last one is the end.
 */
export async function* answerInRounds(serving: Serving): AsyncGenerator<readonly ChatEvent[], void, undefined> {
  const { parts, admitted, bill, upstream, clientSignal, leaving } = serving
  const count = countEachOnce(admitted.input, (texts) => parts.counting.countTokens(texts, admitted.sharesOf))
  const delivered = { rounds: 0, textLength: 0, hasReasoning: false }
  let runner: ToolRunner | undefined
  let plan: Pick<RoundPlan, 'request' | 'turns' | 'isLast'> | undefined = {
    request: admitted.request,
    turns: [],
    isLast: admitted.offer.size === 0,
  }
  while (plan !== undefined) {
    // When the client asked for JSON, text before a tool call would be a second document: hold it until the round has ended.
    const holdsText = !plan.isLast && admitted.chat.responseFormat.type !== 'text'
    const reader = new RoundReader(bill, admitted.offer, delivered, holdsText)
    const attempts = new UpstreamAttempts(admitted, upstream)
    let answer: RoutedAnswer | undefined
    let shown: readonly ChatEvent[] = []
    try {
      answer = await askUpstream(serving, plan.request, attempts)
      for await (const events of cutAnswer(answer, plan.request, serving)) {
        shown = reader.take(events)
        // Leaving the loop stops the upstream.
        if (bill.overflowed) reader.end ??= { type: 'finish', reason: 'length' }
        if (reader.end !== undefined) break
        if (shown.length > 0) yield shown
      }
    } finally {
      attempts.end(outcomeOf(reader, clientSignal))
      if (answer !== undefined) {
        const isLeft = reader.end === undefined && clientSignal.aborted
        upstream.roundEnded(answer.route, reader.end?.usage, bill.roundStarted || isLeft)
      }
      // A client that disconnects during an answer pays for the output so far, held back or not.
      // When the service stops the request, held output is not delivered.
      const isCancelled = clientSignal.aborted && !(clientSignal.reason instanceof ServiceError)
      if (isCancelled && reader.end === undefined) reader.release()
    }
    if (reader.end === undefined) throw new Error('the upstream ended without a last event')
    if (leaving.readsOn) return yield [...shown, ...reader.release(), reader.end]
    if (reader.pendingCalls.length === 0 || plan.isLast) {
      return yield [...shown, ...reader.release(), ...citations(runner, reader), endOf(reader, reader.end)]
    }
    if (shown.length > 0) yield shown
    runner ??= new ToolRunner(parts, admitted, bill, clientSignal)
    const results = yield* runCalls(serving, runner, reader)
    const wish = {
      turns: plan.turns,
      last: reader.turnOf(answer.route.provider),
      results,
      isLast: runner.closed || delivered.rounds >= roundsMax - 1,
    }
    const next = await planRound({ admitted, bill, runner, count }, wish)
    // Its input would not be paid for while no client waits.
    await serving.waitForClient()
    if (next !== undefined) bill.beginRound(next.round)
    plan = next
  }
  // No money is left for the answer. The results are lost to the customer, but the charge stays within the limit.
  yield [{ type: 'finish', reason: 'length' }]
}

/** The outcome of an upstream request, for the metrics. */
function outcomeOf({ end }: RoundReader, clientSignal: AbortSignal): string {
  if (end !== undefined) return end.type === 'finish' ? 'succeeded' : 'failed'
  return clientSignal.aborted ? 'cancelled' : 'failed'
}

/** The attempts of one round. Each is a phase of the request, for its spans and metrics. */
class UpstreamAttempts {
  readonly #watch: AdmittedRequest['watch']
  readonly #upstream: UpstreamUse
  #phase: Phase | undefined

  constructor({ watch }: AdmittedRequest, upstream: UpstreamUse) {
    this.#watch = watch
    this.#upstream = upstream
  }

  begin(provider: string): AttemptWatch {
    this.#upstream.attempted(provider)
    const phase = this.#watch.begin('upstream', provider)
    this.#phase = phase
    return { headers: this.#watch.headersOf(phase), failed: () => this.#watch.end(phase, 'failed') }
  }

  end(outcome: string): void {
    if (this.#phase !== undefined) this.#watch.end(this.#phase, outcome)
  }
}

async function askUpstream(
  { parts, admitted, bill, leaving }: Serving,
  request: ModelRequest,
  attempts: UpstreamAttempts,
): Promise<RoutedAnswer> {
  parts.failpoint('before_upstream_write')
  return parts.router.ask({
    model: admitted.model.id,
    request,
    account: admitted.sharesOf,
    signal: leaving.signal,
    onSent: ({ id, sealsReasoning }) =>
      bill.noteSent({ provider: id, effort: request.reasoningEffort, sealsReasoning }),
    onAttempt: (provider) => attempts.begin(provider),
  })
}

/** The upstream's answer, cut where the client asked for fewer tokens than the upstream's minimum. */
function cutAnswer(
  answer: AsyncIterable<readonly ChatEvent[]>,
  request: ModelRequest,
  { parts, admitted: { chat, sharesOf } }: Serving,
): AsyncIterable<readonly ChatEvent[]> {
  if (chat.maxTokens >= request.maxOutputTokens) return answer
  const cut = createOutputCut(chat.maxTokens, (text) => parts.charging.countTokens([text], sharesOf))
  return cutEvents(answer, cut)
}

async function* cutEvents(
  answer: AsyncIterable<readonly ChatEvent[]>,
  cut: OutputCut,
): AsyncGenerator<readonly ChatEvent[], void, undefined> {
  for await (const events of answer) yield await cut.push(events)
}

/** Finishes a round on the bill and runs its calls one after another: each may need money that is not held yet. */
async function* runCalls(
  { parts, admitted: { hold }, bill, upstream }: Serving,
  runner: ToolRunner,
  { pendingCalls, end }: RoundReader,
): AsyncGenerator<readonly ChatEvent[], readonly PendingResult[], undefined> {
  const { inputTokensMax } = bill.round!
  const usage = await roundUsage({ hold, bill, usage: end?.usage, isWhole: true, upstream }, parts.charging)
  bill.finishRound(usage)
  const results: PendingResult[] = []
  for (const call of pendingCalls) {
    const result = yield* runner.run(call, inputTokensMax + usage.completionTokens)
    results.push({ callId: call.id, result })
  }
  return results
}

/** The pages from our tools that the answer refers to. */
function citations(runner: ToolRunner | undefined, { text, textStart }: RoundReader): readonly ChatEvent[] {
  const found = runner?.sources.citationsIn(text, textStart) ?? []
  return found.map((annotation) => ({ type: 'annotation', annotation }))
}

/** A model that keeps calling our tools when it may not has nothing else to say: the answer ends here. */
function endOf({ pendingCalls }: RoundReader, end: RoundEnd): ChatEvent {
  return end.type === 'finish' && pendingCalls.length > 0 ? { ...end, reason: 'stop' } : end
}
