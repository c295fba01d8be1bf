import { Bill } from '../billing/bill.ts'
import { chargeFor, type Outcome } from '../billing/charge.ts'
import { inputLine } from '../billing/quote.ts'
import { UpstreamUse } from '../billing/upstream-use.ts'
import { ServiceError } from '../errors.ts'
import type { ChatEvent } from '../inference/chat-events.ts'
import { createOutputCut } from '../inference/cut-output.ts'
import type { End, EndCall, Payer } from '../ledger/hold-calls.ts'
import { formatRequestId, type RequestId } from '../ledger/request-id.ts'
import { cost } from '../money/price.ts'
import { fromAtomic, min, type Usdc, zero } from '../money/usdc.ts'
import type { Observer } from '../observe/observer.ts'
import type { EndFacts } from '../observe/request-facts.ts'
import type { Phase } from '../observe/request-watch.ts'
import type { Failpoint } from '../process/failpoints.ts'
import type { RoutedAnswer, Router } from '../providers/router.ts'
import { failureError, isCustomersFault } from '../providers/upstream-errors.ts'
import type { AdmittedRequest } from './admit.ts'
import type { Answers } from './answers.ts'
import type { Checkpoints } from './checkpoints.ts'
import { type AnswerEnd, type AnswerHead, AnswerLog, type Recording } from './log.ts'
import type { OpenRequests } from './open-requests.ts'
import { type RoundEnd, RoundReader } from './round-reader.ts'
import { RunningCost } from './running-cost.ts'
import { firstRound, type NextRound, type ToolRoundParts, ToolRounds } from './tool-rounds.ts'
import { UsageSoFar } from './usage-so-far.ts'

// One request is one answer. Its states, and what moves it from one to the next:
//
//   checked    the hold is placed: `serve`                            → held
//              the hold is refused: `refuse`                          → refused
//   held       a provider is asked                                    → asked
//   asked      the provider accepts the request                       → answering
//   answering  the round ends with calls of our tools                 → tools
//              the round ends, or fails                               → ending
//   tools      the next round fits into the money                     → asked
//              no money is left for it                                → ending
//   ending     the end is committed, or no client can hear of it      → ended
//
//   `stop` ends held, asked, answering and tools: what they wait for is aborted, then → ending. Its reason says whose fault it is:
//   a `ServiceError` is ours (failed), everything else is the client's (cancelled). Where only the provider's last report tells what a
//   client that left owes, the round is read on to its end without its client (`#readsOn`).
//
// Clients of an answer are its first client, which gets every event as it comes, and the retries that join it, which read the log once
// the answer is complete. When the last of them leaves, an answer with a retry mark goes on for a grace period; others stop.
//
// Two promises are kept here only: the last bytes go out after the end is committed (`#end`), and an answer whose end may have been
// written is never replaced by an error (`#unheard`).

type State = 'checked' | 'refused' | 'held' | 'asked' | 'answering' | 'tools' | 'ending' | 'ended'

const arrows: Readonly<Record<State, readonly State[]>> = {
  checked: ['held', 'refused'],
  refused: [],
  held: ['asked', 'ending'],
  asked: ['answering', 'ending'],
  answering: ['tools', 'ending'],
  tools: ['asked', 'ending'],
  ending: ['ended'],
  ended: [],
}

export type ServingParts = ToolRoundParts & {
  readonly router: Pick<Router, 'ask'>
  readonly checkpoints: Checkpoints
  readonly observer: Observer
  readonly openRequests: OpenRequests
  readonly failpoint: Failpoint
  /** Monotonic milliseconds. */
  readonly now: () => number
}

/** Writes an answer to one connection, streamed or buffered. */
export type AnswerReader = {
  /** Writes events as they arrive. A returned promise is backpressure: write no more until it resolves. */
  deliver(events: readonly ChatEvent[]): Promise<void> | undefined
  succeed(end: AnswerEnd, headers?: Readonly<Record<string, string>>): void
  /** `charged`: what the failed answer costs. True when the client is advised to retry, and nothing else was sent to it. */
  fail(error: unknown, charged?: Usdc): boolean
  /** The client has disconnected: nothing more is sent. */
  abandon(): void
}

/** The client that asked. */
export type FirstClient = {
  readonly reader: AnswerReader
  /** Aborts when the connection closes, or with the `ServiceError` that ends the request. */
  readonly signal: AbortSignal
  /** Resolves when the connection is closed, or the answer was sent. */
  closed(): Promise<void>
  /** Called with the failure of a failed request. */
  onFailed(failure: unknown): void
  onError(error: unknown): void
}

/** How a request that may be retried is known to its retries. */
export type RetryMark = {
  /** Stored in the ledger; an SDK retry finds the request by it. */
  readonly attemptHash: bigint | undefined
  /** The answer is complete: refunds the request that it replaces. */
  delivered(): Promise<void>
  /** The answer ended: keeps it for retries on other nodes. */
  close(recording: Recording | undefined): Promise<void>
  /** The request cost nothing, and its client was advised to retry. */
  expectRetry(): void
}

type Retriable = { readonly mark: RetryMark; readonly answers: Answers }

/** How serving ended, before it is priced. */
type Reached = {
  readonly outcome: Outcome
  /** The last round's usage, as the upstream reported it. */
  readonly usage: unknown
  /** The last round was read to its end. */
  readonly isWhole: boolean
  readonly failure: unknown
}

/** What an answer needs once its money is held. */
type Service = {
  readonly parts: ServingParts
  readonly admitted: AdmittedRequest
  readonly client: FirstClient
  readonly bill: Bill
  readonly upstream: UpstreamUse
  readonly cost: RunningCost | undefined
}

export class Answer {
  readonly requestId: RequestId
  readonly payer: Payer
  /** Kept for retries only. Its events are undefined once it does not fit into memory. */
  readonly log: AnswerLog | undefined
  readonly #retriable: Retriable | undefined
  #state: State = 'checked'
  #service: Service | undefined

  // Clients
  #clients = 1
  #isConnected = true
  #isGivenUp = false
  #graceTimer: NodeJS.Timeout | undefined
  #remoteTimer: NodeJS.Timeout | undefined
  #returned: PromiseWithResolvers<void> | undefined
  #head: PromiseWithResolvers<AnswerHead> | undefined
  #result: PromiseWithResolvers<Recording | undefined> | undefined

  // Stopping
  #stopped: { readonly reason: unknown } | undefined
  #readsOn = false
  #halted: PromiseWithResolvers<void> | undefined
  #isHalted = false
  /** Ends the wait for the upstream of the current round. */
  #onStop: ((reason: unknown) => void) | undefined
  #isUpstreamStopped = false
  #toolsStop: AbortController | undefined
  #toolsHalt: AbortController | undefined

  // Billing: what was written when the first client's connection closed, and when the last client left.
  #cut: Bill | undefined
  #left: Bill | undefined

  /** `retriable`: left out for a request without a mark. Retries cannot join it, and it ends with its client. */
  constructor(requestId: RequestId, payer: Payer, retriable?: Retriable) {
    this.requestId = requestId
    this.payer = payer
    this.#retriable = retriable
    if (retriable !== undefined) {
      this.log = new AnswerLog((bytes) => retriable.answers.reserve(bytes))
      this.#head = Promise.withResolvers()
      this.#result = Promise.withResolvers()
    }
  }

  get attemptHash(): bigint | undefined {
    return this.#retriable?.mark.attemptHash
  }

  get isEnded(): boolean {
    return this.#state === 'ended' || this.#state === 'refused'
  }

  /** Why the answer was stopped. */
  get stopped(): { readonly reason: unknown } | undefined {
    return this.#stopped
  }

  /** No client waits for the answer. A retry that comes after it was stopped gets none of it, and must not pay for it. */
  get isAbandoned(): boolean {
    return this.#retriable !== undefined && (this.#clients === 0 || this.#isGivenUp)
  }

  /** The output is streamed to a client. While only retries wait for it, a crash charges what was delivered before. */
  get isDelivered(): boolean {
    return this.#serving.admitted.chat.stream && (this.#isConnected || this.#retriable === undefined)
  }

  get #serving(): Service {
    return this.#service!
  }

  // From the hold to the end

  /** The hold was refused. The request may be decided again under the key's new options, with another answer. */
  async refuse(): Promise<void> {
    await this.#close(undefined, 'refused')
  }

  /** Another attempt has the claim: this answer is never served. */
  drop(): void {
    this.#enter('refused')
    this.#settle(undefined)
  }

  /** The refused request cost nothing, and its client was advised to retry. */
  expectRetry(): void {
    this.#retriable?.mark.expectRetry()
  }

  /** From here on the hold exists. Whatever happens, it is ended in the ledger. Resolves when the client has its last byte. */
  async serve(parts: ServingParts, admitted: AdmittedRequest, client: FirstClient): Promise<void> {
    this.#enter('held')
    const head = headOf(admitted)
    this.#head?.resolve(head)
    const bill = new Bill(admitted, parts.now)
    const usage = new UsageSoFar(bill, parts.counting, admitted.sharesOf)
    const deliver = (events: readonly ChatEvent[]) => this.#deliver(events)
    const cost = admitted.chat.includeCost ? new RunningCost({ usage, bill, now: parts.now, deliver }) : undefined
    this.#service = { parts, admitted, client, bill, upstream: new UpstreamUse(), cost }
    const { quote, payer } = admitted.hold
    const open = parts.openRequests.begin(payer.accountId, { quote, model: admitted.model.id })
    const unwatch = parts.checkpoints.watch({ admitted, bill, usage, clients: this })
    const left = () => this.#disconnected(client.signal.reason)
    if (client.signal.aborted) left()
    else client.signal.addEventListener('abort', left, { once: true })
    try {
      const reached = await this.#run()
      cost?.stop()
      unwatch()
      this.#enter('ending')
      await this.#end(head, reached)
    } catch (error) {
      // The end may have been written, but no client can hear of it any more.
      client.onError(error)
      parts.observer.lost(admitted.watch, formatRequestId(this.requestId), head.model, admitted.chat.stream)
      client.reader.fail(error)
      await this.#close(undefined)
    } finally {
      open[Symbol.dispose]()
    }
  }

  // Clients

  /** A client disconnected: the first one, or a retry. A `ServiceError` as reason stops the answer for all clients. */
  leave(reason: unknown, hasOutput = false): void {
    this.#clients -= 1
    if (this.isEnded || (this.#clients > 0 && !(reason instanceof ServiceError))) return
    if (this.#retriable === undefined) {
      this.stop(reason)
      return
    }
    // If no retry comes, this is what is charged.
    this.#left = this.#service?.bill.snapshot()
    this.#returned = Promise.withResolvers()
    this.#returned.promise.catch(() => {})
    const { grace, graces } = this.#retriable.answers
    if (this.log?.events === undefined || reason instanceof ServiceError || !graces.begin(this)) this.stop(reason)
    else this.#graceTimer = setTimeout(() => this.stop(reason), hasOutput ? grace.afterOutputMs : grace.beforeOutputMs)
  }

  /** A retry waits for the answer; undefined when there is none to replay. Calls `onHead` with the answer's head. */
  async join(clientSignal: AbortSignal, onHead: (head: AnswerHead) => void): Promise<Recording | undefined> {
    clientSignal.throwIfAborted()
    const left = Promise.withResolvers<never>()
    const leave = () => left.reject(clientSignal.reason)
    clientSignal.addEventListener('abort', leave, { once: true })
    this.#arrive()
    let isOver = false
    void this.#head?.promise.then((head) => {
      if (!isOver) onHead(head)
    })
    try {
      return await Promise.race([this.result, left.promise])
    } finally {
      isOver = true
      clientSignal.removeEventListener('abort', leave)
      this.leave(clientSignal.reason)
    }
  }

  /** A retry waits on another node. It counts as a client until it has been silent for `forMs`. */
  joinRemotely(forMs: number): void {
    if (this.isEnded) return
    if (this.#remoteTimer !== undefined) this.#remoteTimer.refresh()
    else {
      this.#arrive()
      this.#remoteTimer = setTimeout(() => {
        this.#remoteTimer = undefined
        this.leave(new Error('the retry on another node disconnected'))
      }, forMs)
    }
  }

  /** The answer; undefined when it ended without one. */
  get result(): Promise<Recording | undefined> {
    return this.#result?.promise ?? Promise.resolve(undefined)
  }

  /** Resolves when a client waits for the answer; rejects when the answer is stopped. */
  waitForClient(): Promise<void> | undefined {
    return this.isAbandoned ? this.#returned?.promise : undefined
  }

  #arrive(): void {
    this.#clients += 1
    this.#endGrace(true)
    this.#returned?.resolve()
    this.#returned = undefined
  }

  #endGrace(isClaimed: boolean): void {
    if (this.#graceTimer === undefined) return
    clearTimeout(this.#graceTimer)
    this.#graceTimer = undefined
    this.#retriable?.answers.graces.end(this, isClaimed)
  }

  #disconnected(reason: unknown): void {
    const { bill, admitted } = this.#serving
    this.#isConnected = false
    if (this.#retriable !== undefined) this.#cut = bill.deliveredSnapshot()
    this.leave(reason, admitted.chat.stream && (this.log?.bytes ?? 0) > 0)
  }

  // Stopping

  /** Ends the answer early. A `ServiceError` is the error for its clients; for every other reason its client has cancelled it. */
  stop(reason: unknown): void {
    if (reason instanceof ServiceError) this.#halt(reason)
    if (this.#stopped !== undefined) return
    this.#isGivenUp = this.isAbandoned
    this.#endGrace(false)
    this.#stopped = { reason }
    this.#returned?.reject(reason)
    this.#toolsStop?.abort(reason)
    this.#readsOn = !this.#isStoppedByUs && this.#needsReport
    if (!this.#readsOn) this.#stopUpstream(reason)
  }

  /** The service stops: it waits for no retry, and reads nothing on. */
  #halt(reason: ServiceError): void {
    this.#isHalted = true
    this.#halted?.resolve()
    this.#toolsHalt?.abort(reason)
    if (this.#readsOn) this.#stopUpstream(reason)
  }

  #stopUpstream(reason: unknown): void {
    this.#isUpstreamStopped = true
    this.#onStop?.(reason)
  }

  get #needsReport(): boolean {
    if (this.#service === undefined) return false
    const { parts, bill } = this.#service
    return parts.charging.hiddenReasoning.needsReport(bill.seen)
  }

  get #isStoppedByUs(): boolean {
    return this.#stopped?.reason instanceof ServiceError
  }

  // Rounds

  async #run(): Promise<Reached> {
    let last: RoundEnd | undefined
    try {
      const { admitted, bill } = this.#serving
      const delivered = { rounds: 0, textLength: 0, hasReasoning: false }
      let tools: ToolRounds | undefined
      let plan: NextRound | undefined = firstRound(admitted)
      while (plan !== undefined) {
        // When the client asked for JSON, text before a tool call would be a second document: hold it until the round has ended.
        const holdsText = !plan.isLast && admitted.chat.responseFormat.type !== 'text'
        const round = new RoundReader(bill, admitted.offer, delivered, holdsText)
        const { provider, shown } = await this.#readRound(plan.request, round)
        const end: RoundEnd = round.end!
        if (this.#readsOn) {
          round.release()
          return cancelledWith(end)
        }
        if (round.pendingCalls.length === 0 || plan.isLast) {
          last = end
          // Text that was held back is searched for citations once it is released.
          const released = round.release()
          const cited = tools?.citationsOf(round) ?? []
          return await this.#finish([...shown, ...released, ...cited], endOf(round, end))
        }
        if (shown.length > 0) await this.#show(shown)
        this.#enter('tools')
        tools ??= this.#createTools()
        const next: Awaited<ReturnType<ToolRounds['next']>> = await tools.next(round, plan, provider)
        // Its input would not be paid for while no client waits.
        await this.waitForClient()
        if (next !== undefined) bill.beginRound(next.round)
        plan = next
      }
      // No money is left for the answer. The results are lost to the customer, but the charge stays within the limit.
      return await this.#finish([], { type: 'finish', reason: 'length' })
    } catch (error) {
      if (this.#stopped === undefined) return failed(error)
      // Only a disconnected client has cancelled. When we stop a request ourselves, that is our failure.
      if (this.#isStoppedByUs) return failed(this.#stopped.reason)
      return this.#readsOn ? cancelledWith(last) : cancelled
    }
  }

  /** Asks a provider and shows its events. Returns those of the last read, which are shown with what follows them. */
  async #readRound(request: NextRound['request'], round: RoundReader) {
    const { parts, admitted, bill, upstream } = this.#serving
    const { watch, chat, sharesOf } = admitted
    this.#enter('asked')
    const over = Promise.withResolvers<void>()
    this.#onStop = over.reject
    let phase: Phase | undefined
    let shown: readonly ChatEvent[] = []
    const take = (events: readonly ChatEvent[]) => {
      // It was stopped while the events were cut.
      if (this.#onStop === undefined) return undefined
      try {
        shown = round.take(events)
        if (bill.overflowed) round.end ??= { type: 'finish', reason: 'length' }
        if (round.end !== undefined) over.resolve()
        else if (shown.length > 0 && !this.#readsOn) return this.#show(shown)
      } catch (error) {
        over.reject(error)
      }
      return undefined
    }
    // The client may ask for fewer tokens than the upstream's minimum.
    const cut =
      chat.maxTokens < request.maxOutputTokens
        ? createOutputCut(chat.maxTokens, (text) => parts.charging.countTokens([text], sharesOf))
        : undefined
    let answer: RoutedAnswer | undefined
    try {
      if (this.#isUpstreamStopped) throw this.#stopped?.reason
      parts.failpoint('before_upstream_write')
      answer = parts.router.ask({
        model: admitted.model.id,
        request,
        account: sharesOf,
        sink: {
          onAccepted: () => {
            if (this.#state === 'asked') this.#enter('answering')
          },
          onEvents: cut === undefined ? take : (events) => cut.push(events).then(take, over.reject),
          onRefused: over.reject,
        },
        onSent: ({ id, sealsReasoning }) =>
          bill.noteSent({ provider: id, effort: request.reasoningEffort, sealsReasoning }),
        onAttempt: (provider) => {
          upstream.attempted(provider)
          const attempt = watch.begin('upstream', provider)
          phase = attempt
          return { headers: watch.headersOf(attempt), failed: () => watch.end(attempt, 'failed') }
        },
      })
      await over.promise
      return { provider: answer.route.provider, shown }
    } finally {
      this.#onStop = undefined
      answer?.stop()
      if (phase !== undefined) watch.end(phase, outcomeOf(round, this.#stopped !== undefined))
      const isLeft = round.end === undefined && this.#stopped !== undefined
      if (answer !== undefined && this.#state === 'answering') {
        upstream.roundEnded(answer.route, round.end?.usage, bill.roundStarted || isLeft)
      }
      // A client that disconnects during an answer pays for the output so far, held back or not.
      // When the service stops the request, held output is not delivered.
      if (isLeft && !this.#isStoppedByUs) round.release()
    }
  }

  #createTools(): ToolRounds {
    const { parts, admitted, bill, upstream } = this.#serving
    this.#toolsStop = new AbortController()
    this.#toolsHalt = new AbortController()
    if (this.#stopped !== undefined) this.#toolsStop.abort(this.#stopped.reason)
    const signals = { stopped: this.#toolsStop.signal, halted: this.#toolsHalt.signal }
    return new ToolRounds(parts, { admitted, bill, upstream, signals, deliver: (events) => this.#show(events) })
  }

  async #finish(events: readonly ChatEvent[], end: RoundEnd): Promise<Reached> {
    // A failure before any output is still an ordinary error response: send nothing ahead of it.
    if (end.type !== 'failed' || this.#serving.bill.outputStarted) await this.#show([...events, end])
    if (end.type === 'failed') return failed(failureError(end), end.usage)
    await this.waitForClient()
    const outcome = { status: 'succeeded', finishReason: end.reason } as const
    return { outcome, usage: end.usage, isWhole: true, failure: undefined }
  }

  #show(events: readonly ChatEvent[]): Promise<void> | undefined {
    const { parts, bill, cost } = this.#serving
    const drained = this.#deliver(events)
    if (cost !== undefined && bill.outputStarted) cost.tick()
    parts.failpoint('on_chunk')
    return drained
  }

  #deliver(events: readonly ChatEvent[]): Promise<void> | undefined {
    const { client } = this.#serving
    this.log?.add(events)
    if (this.#isConnected) return client.reader.deliver(events)
    if (this.log === undefined) return undefined
    // The log was dropped: a retry could no longer get this answer from the beginning. One that waits has not cancelled it.
    if (this.log.events === undefined) this.stop(this.isAbandoned ? client.signal.reason : new AnswerLostError())
    // Web tools are not paid for while no client waits.
    return events.some(({ type }) => type === 'activity') ? this.waitForClient() : undefined
  }

  // The end

  /** The last bytes are sent when the charge is certain: a client that got an error instead would retry, and pay twice. */
  async #end(head: AnswerHead, reached: Reached): Promise<void> {
    const { parts, admitted, client, bill, upstream, cost } = this.#serving
    const { watch, chat } = admitted
    const { served, billed } = this.#billed(reached)
    const { status } = served.outcome
    const charge = await chargeFor({ hold: admitted.hold, stream: chat.stream, upstream, ...billed }, parts.charging)
    const end = await watch.during(
      'charge',
      () => parts.holds.end(charge, status === 'succeeded' ? () => this.#unheard() : undefined),
      (stored) => stored.status,
    )
    parts.observer.ended(watch, endFacts(admitted, charge, end, bill))
    if (served.outcome.status === 'succeeded') {
      cost?.sendCharge(end.charged, charge.usage!)
      const { finishReason } = served.outcome
      const answerEnd = { finishReason, ...answerCost(admitted, charge, end) }
      await this.#closeDelivered(head, answerEnd)
      parts.failpoint('before_last_frame')
      client.reader.succeed(answerEnd, { 'server-timing': watch.serverTiming })
      return
    }
    if (status === 'cancelled') client.reader.abandon()
    else {
      client.onFailed(served.failure)
      if (client.reader.fail(served.failure, end.charged)) this.expectRetry()
    }
    await this.#close(undefined)
  }

  /** What is owed: the charge follows from how serving ended, who was connected, and what they had received. */
  #billed(reached: Reached): { readonly served: Reached; readonly billed: Reached & { readonly bill: Bill } } {
    const { bill } = this.#serving
    // No client is connected: output since the last one left is not billed, unless it was read on for its report.
    const isReadOn = reached.outcome.status === 'cancelled' && reached.isWhole
    const left = this.isAbandoned && !isReadOn ? this.#left : undefined
    // The round may have been sent, or a search may have ended, while the answer waited for a retry.
    if (bill.sent !== undefined && left?.sent === undefined) left?.noteSent(bill.sent)
    left?.noteSearches(bill.searchCalls)
    const served = left && !this.#isStoppedByUs ? cancelled : reached
    const { outcome } = served
    if (outcome.status !== 'failed') return { served, billed: { ...served, bill: left ?? bill } }
    // A failed request owes what its first client received: nothing that was held back, and nothing after its connection closed.
    // Retries that joined receive nothing of it. Rounds and searches that ran for them are owed, too, where the customer is at fault.
    const owesRounds = outcome.isCustomersFault && bill.finished !== undefined
    if (this.#cut === undefined || owesRounds) return { served, billed: { ...served, bill: bill.deliveredSnapshot() } }
    return { served, billed: { ...served, bill: this.#cut, usage: undefined, isWhole: false } }
  }

  /**
   * Resolves when no client can get the answer any more, not even by a retry: while the connection is open, and while the log is kept,
   * there must be no error for a request whose charge may have been written.
   */
  async #unheard(): Promise<void> {
    if (this.log?.events !== undefined && !this.#isHalted) {
      this.#halted ??= Promise.withResolvers()
      await this.#halted.promise
    }
    await this.#serving.client.closed()
  }

  /** Before the last byte is sent: what the answer replaces is refunded, and retries can get it. */
  async #closeDelivered(head: AnswerHead, end: AnswerEnd): Promise<void> {
    const events = this.log?.events
    await this.#retriable?.mark.delivered().catch((error) => this.#serving.client.onError(error))
    await this.#close(events && { ...head, ...end, events })
  }

  /** Ends the answer for every client that waits for it, and keeps a recording for later retries. */
  async #close(recording: Recording | undefined, state: 'ended' | 'refused' = 'ended'): Promise<void> {
    if (this.#state === state) return
    // Failing to store the answer for retries must not fail the answer.
    await this.#retriable?.mark.close(recording).catch((error) => this.#service?.client.onError(error))
    this.#enter(state)
    this.#settle(recording)
  }

  #settle(recording: Recording | undefined): void {
    this.#endGrace(recording !== undefined)
    clearTimeout(this.#remoteTimer)
    this.#result?.resolve(recording)
    this.#retriable?.answers.ended(this, recording !== undefined)
  }

  #enter(state: State): void {
    if (!arrows[this.#state].includes(state)) throw new Error(`no answer goes from ${this.#state} to ${state}`)
    this.#state = state
  }
}

export function headOf({ requestId, model, hold }: AdmittedRequest): AnswerHead {
  return { requestId, model: model.id, createdAt: hold.createdAt, held: hold.quote }
}

/** The ledger's result. It differs from ours when another node ended the request first. */
function answerCost({ model }: AdmittedRequest, charge: EndCall, { charged }: End): Omit<AnswerEnd, 'finishReason'> {
  const usage = charge.usage!
  const searchCost = min(charge.searchCost, charged)
  const inputCost = min(cost([inputLine(model, usage.promptTokens)]), fromAtomic(charged - searchCost))
  return { usage, charged, searchCost, inputCost }
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

/** The outcome of an upstream request, for the metrics. */
function outcomeOf({ end }: RoundReader, isStopped: boolean): string {
  if (end !== undefined) return end.type === 'finish' ? 'succeeded' : 'failed'
  return isStopped ? 'cancelled' : 'failed'
}

/** A model that keeps calling our tools when it may not has nothing else to say: the answer ends here. */
function endOf({ pendingCalls }: RoundReader, end: RoundEnd): RoundEnd {
  return end.type === 'finish' && pendingCalls.length > 0 ? { ...end, reason: 'stop' } : end
}

const cancelled: Reached = {
  outcome: { status: 'cancelled' },
  usage: undefined,
  isWhole: false,
  failure: undefined,
}

/** The client left, and the answer was read on. Without its end, it is billed like one that was cut off. */
function cancelledWith(end: RoundEnd | undefined): Reached {
  return end?.type === 'finish' ? { ...cancelled, usage: end.usage, isWhole: true } : cancelled
}

function failed(error: unknown, usage?: unknown): Reached {
  const errorCode = error instanceof ServiceError ? error.code : 'internal_error'
  return {
    outcome: { status: 'failed', errorCode, isCustomersFault: isCustomersFault(error) },
    usage,
    isWhole: false,
    failure: error,
  }
}

/** The attempt that a retry waited for ended without an answer. The retry's body is no longer in memory, so it cannot be served. */
export class AnswerLostError extends ServiceError {
  constructor() {
    super(
      'overloaded',
      'The attempt that this retry waited for ended without an answer. You were not charged for this retry. Retry now.',
      {
        retryAfterMs: 1_000,
      },
    )
  }
}
