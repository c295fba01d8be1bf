import { type ChatEvent, writtenText } from '../inference/chat-events.ts'
import { charactersPerTokenMax } from '../inference/tokens.ts'
import { readUsage } from '../inference/usage.ts'
import type { RequestUsage } from '../ledger/hold-calls.ts'
import { cost, type Line, unitsFor } from '../money/price.ts'
import { fromAtomic, type Usdc, zero } from '../money/usdc.ts'
import { type SeenRound, sealedEnvelopeBytes } from './hidden-reasoning.ts'
import type { Model } from './price-list.ts'
import { type InputText, inputLine, outputLine, type Quote } from './quote.ts'

/** One upstream request: its input, and the most it may write. */
export type Round = {
  readonly input: InputText
  readonly inputTokensMax: number
  readonly maxTokens: number
}

/** The most tokens and searches that are about to be paid for. */
export type Step = { readonly searches: number; readonly inputTokens: number; readonly outputTokens: number }

/** The upstream that a round was sent to. */
type Recipient = {
  readonly provider: string
  readonly effort: string
  /** As in `Protocol`. */
  readonly sealsReasoning: boolean
}

/** The terms of one request's bill. */
export type BillTerms = {
  readonly model: Model
  readonly quote: Quote
  /** Atomic USDC for one search. */
  readonly searchPerCall: bigint
  /** The first round's input. */
  readonly input: InputText
}

// An answer is cut only far above its limit: the upstream's tokenizer may count half as many tokens as ours, and the end of a correct
// answer must not be lost. Output is also counted piece by piece, and the upstream has a minimum of sixteen output tokens.
const overflowFactor = 2
const countingSlack = 256

/**
 * The usage of one request, and the most it may cost: its quote plus any extension of its hold. Every round and search is planned
 * within that limit, so the charge never exceeds it. Keeps the text of the current round, in case the upstream does not report its
 * tokens.
 */
export class Bill {
  readonly #terms: BillTerms
  readonly #now: () => number
  #startedMs: number
  #firstOutputMs: number | undefined
  #extended: Usdc = zero
  #finished: RequestUsage | undefined
  #round: Round | undefined
  #output: RoundOutput
  #searchCalls = 0
  #fetchCalls = 0

  /** `now` returns monotonic milliseconds. */
  constructor(terms: BillTerms, now: () => number) {
    const { input, quote } = terms
    this.#terms = terms
    this.#now = now
    this.#startedMs = now()
    this.#round = { input, inputTokensMax: quote.inputTokensMax, maxTokens: quote.maxTokens }
    this.#output = new RoundOutput(quote.maxTokens)
  }

  /** A copy that later events do not change: the bill of a client that disconnects now. It pays for held output, too. */
  snapshot(): Bill {
    const copy = this.#copy(this.#output.copy())
    if (copy.isHolding) copy.noteReleased()
    return copy
  }

  /** A copy without the output that is held back now: the bill of a request that fails. */
  deliveredSnapshot(): Bill {
    return this.#copy(this.#output.copyWithoutHeld())
  }

  #copy(output: RoundOutput): Bill {
    const nowMs = this.#now()
    const copy = new Bill(this.#terms, () => nowMs)
    copy.#startedMs = this.#startedMs
    copy.#firstOutputMs = this.#firstOutputMs
    copy.#extended = this.#extended
    copy.#finished = this.#finished
    copy.#round = this.#round
    copy.#output = output
    copy.#searchCalls = this.#searchCalls
    copy.#fetchCalls = this.#fetchCalls
    return copy
  }

  get modelId(): string {
    return this.#terms.model.id
  }

  // Rounds

  /** The current round; undefined between two rounds. */
  get round(): Round | undefined {
    return this.#round
  }

  /** Usage of the finished rounds; undefined during the first. */
  get finished(): RequestUsage | undefined {
    return this.#finished
  }

  beginRound(round: Round): void {
    this.#round = round
    this.#output = new RoundOutput(round.maxTokens)
  }

  finishRound(usage: RequestUsage): void {
    this.#finished = this.sum(usage)
    this.#round = undefined
  }

  /** The finished rounds plus one more. The source is `counted` when we counted any of them. */
  sum(last: RequestUsage): RequestUsage {
    const before = this.#finished
    if (before === undefined) return last
    return {
      promptTokens: before.promptTokens + last.promptTokens,
      completionTokens: before.completionTokens + last.completionTokens,
      reasoningTokens: before.reasoningTokens + last.reasoningTokens,
      cachedTokens: before.cachedTokens + last.cachedTokens,
      source: before.source === 'counted' ? 'counted' : last.source,
    }
  }

  // Upstream output

  addAll(events: readonly ChatEvent[]): void {
    for (const event of events) this.add(event)
  }

  /** An event that is delivered to the client. */
  add(event: ChatEvent): void {
    switch (event.type) {
      case 'text':
      case 'refusal':
      case 'tool-arguments':
        this.addHidden(writtenText(event))
        break
      case 'tool-call':
        this.addHidden(event.name)
        break
      case 'reasoning':
        this.#noteWritten()
        this.#output.addReasoning(writtenText(event))
        break
      default:
        return
    }
    this.#noteDelivered()
  }

  /** Output that the client does not get, or not yet, such as a call of one of our tools. Billed, but not delivered. */
  addHidden(text: string): void {
    this.#noteAnswer()
    this.#output.addAnswer(text)
  }

  /** Output held back until it is known to be part of the answer. A client that disconnects meanwhile pays for it. */
  addHeld(text: string): void {
    this.#noteAnswer()
    this.#output.addHeld(text)
  }

  /** Held output was delivered, or would have been if the client had stayed. */
  noteReleased(): void {
    this.#output.release()
    this.#noteDelivered()
  }

  /** Output of the current round is held back. */
  get isHolding(): boolean {
    return this.#round !== undefined && this.#output.hasHeld
  }

  /** A finished item of encrypted reasoning. Only its size is known. */
  addSealed(bytes: number): void {
    this.#output.sealedBytes += Math.max(0, bytes - sealedEnvelopeBytes)
  }

  /** The upstream's usage of this round so far. */
  noteReported(usage: unknown): void {
    this.#output.reported = usage
  }

  /** The last report before the end of the round. Not validated yet. */
  get reported(): unknown {
    return this.#output.reported
  }

  #noteWritten(): void {
    this.#output.firstMs ??= this.#now()
  }

  #noteAnswer(): void {
    this.#noteWritten()
    this.#output.answerMs ??= this.#now()
  }

  #noteDelivered(): void {
    this.#firstOutputMs ??= this.#now()
  }

  /** The round was sent to an upstream, which may read its input from now on: the operator may have to pay for it. */
  noteSent(recipient: Recipient): void {
    this.#output.sent = { ...recipient, atMs: this.#now() }
  }

  /** The upstream that the current round, or the last one between two rounds, was sent to. */
  get sent(): Recipient | undefined {
    return this.#output.sent
  }

  /** True after the first content, refusal, reasoning or tool call from the upstream. */
  get outputStarted(): boolean {
    return this.#firstOutputMs !== undefined
  }

  /** True when the upstream wrote anything in this round. */
  get roundStarted(): boolean {
    return this.#output.isStarted
  }

  /** What tells of reasoning that the current round does not show. */
  get seen(): SeenRound {
    const { sent, firstMs = this.#now(), answerMs, isStarted, sealedBytes, reported } = this.#output
    const { provider = '', effort = '', sealsReasoning = true, atMs = firstMs } = sent ?? {}
    const seals = sealsReasoning || sealedBytes > 0
    const soFar = readUsage(reported)
    // Some servers report one token with their first chunk, and nothing later.
    const isReported = soFar !== undefined && 'completionTokens' in soFar && soFar.completionTokens > 1
    return {
      provider,
      model: this.modelId,
      effort,
      sealedBytes,
      silentMs: firstMs - atMs,
      hasOutput: this.#round !== undefined && isStarted,
      reasonedMs: (answerMs ?? this.#now()) - atMs,
      hasAnswer: answerMs !== undefined,
      seals,
      showsReasoning: seals || isReported || this.reasoningText !== '',
    }
  }

  get answerText(): string {
    return this.#output.answerText
  }

  get reasoningText(): string {
    return this.#output.reasoningText
  }

  /** Size of this round's encrypted reasoning, without its envelopes. */
  get sealedBytes(): number {
    return this.#output.sealedBytes
  }

  /** The output since the last call. */
  takeFresh(): { readonly answer: string; readonly reasoning: string } {
    return this.#output.takeFresh()
  }

  /** The output of this round so far has this many tokens. */
  noteCounted(tokens: number): void {
    this.#output.counted = tokens
  }

  /** The upstream ignores its token limit. What it wrote beyond the limit is not billed. */
  get overflowed(): boolean {
    return this.#output.counted > overflowFactor * this.#output.tokensMax + countingSlack
  }

  get firstTokenMs(): number | undefined {
    return this.#firstOutputMs === undefined ? undefined : Math.round(this.#firstOutputMs - this.#startedMs)
  }

  get totalMs(): number {
    return Math.round(this.#now() - this.#startedMs)
  }

  // Searches and fetches

  get searchCalls(): number {
    return this.#searchCalls
  }

  get fetchCalls(): number {
    return this.#fetchCalls
  }

  get searchCost(): Usdc {
    return fromAtomic(BigInt(this.#searchCalls) * this.#terms.searchPerCall)
  }

  addSearch(): void {
    this.#searchCalls += 1
  }

  /** Searches that had ended, or ended later, of the request that this is a copy of. */
  noteSearches(calls: number): void {
    this.#searchCalls = calls
  }

  addFetch(): void {
    this.#fetchCalls += 1
  }

  // Money

  /** The most that the request may cost. */
  get limit(): Usdc {
    return fromAtomic(this.#terms.quote.amount + this.#extended)
  }

  /** Total of all extensions of the hold. */
  get extended(): Usdc {
    return this.#extended
  }

  /** The total extension that this step needs; 0 when the hold already covers it. */
  extensionFor(step: Step): Usdc {
    const beyond = this.#costWith(step) - this.#terms.quote.amount
    return fromAtomic(beyond <= this.#extended ? 0n : beyond)
  }

  /** The hold was extended to this total. */
  extendTo(total: Usdc): void {
    this.#extended = total
  }

  /** The remainder, over all rounds, of the client's `max_tokens`. */
  get tokensLeft(): number {
    return Math.max(0, this.#terms.quote.maxTokens - (this.#finished?.completionTokens ?? 0))
  }

  /** The output tokens that a round with this input may write, within the limit and `tokensLeft`. */
  affordableOutput(inputTokens: number): number {
    const room = this.limit - this.#costWith({ inputTokens })
    return Math.min(this.tokensLeft, Number(unitsFor(fromAtomic(room), this.#terms.model.outputPerMillion)))
  }

  /** The additional input tokens that a round could read and still write `outputTokens`. */
  affordableInput(inputTokens: number, outputTokens: number): number {
    const room = this.limit - this.#costWith({ inputTokens, outputTokens })
    return Number(unitsFor(fromAtomic(room), this.#terms.model.inputPerMillion))
  }

  /** The cost of this usage and of the searches, rounded up once. */
  costOf({ promptTokens, completionTokens }: Pick<RequestUsage, 'promptTokens' | 'completionTokens'>): Usdc {
    return cost([...this.#tokenLines(promptTokens, completionTokens), this.#searchLine(this.#searchCalls)])
  }

  /** The cost of everything finished plus this step. */
  #costWith({ searches = 0, inputTokens, outputTokens = 0 }: Partial<Step> & { readonly inputTokens: number }): Usdc {
    const { promptTokens = 0, completionTokens = 0 } = this.#finished ?? {}
    return cost([
      ...this.#tokenLines(promptTokens + inputTokens, completionTokens + outputTokens),
      this.#searchLine(this.#searchCalls + searches),
    ])
  }

  #tokenLines(inputTokens: number, outputTokens: number): readonly Line[] {
    const { model } = this.#terms
    return [inputLine(model, inputTokens), outputLine(model, outputTokens)]
  }

  #searchLine(calls: number): Line {
    return { units: calls, perMillion: this.#terms.searchPerCall * 1_000_000n }
  }
}

/** The upstream's output in one round. At most `tokensMax` are billed, so only the text that can reach that count is kept. */
class RoundOutput {
  readonly tokensMax: number
  readonly #answer: KeptText
  readonly #reasoning: KeptText
  #freshAnswer: string[] = []
  #freshReasoning: string[] = []
  sealedBytes = 0
  reported: unknown
  counted = 0
  sent: (Recipient & { readonly atMs: number }) | undefined
  /** When the upstream wrote its first output, apart from encrypted reasoning. */
  firstMs: number | undefined
  /** When it wrote its first answer text or call. */
  answerMs: number | undefined
  readonly #held: string[] = []

  constructor(tokensMax: number, answer?: KeptText, reasoning?: KeptText) {
    this.tokensMax = tokensMax
    this.#answer = answer ?? new KeptText(tokensMax * charactersPerTokenMax)
    this.#reasoning = reasoning ?? new KeptText(tokensMax * charactersPerTokenMax)
  }

  /** Without the fresh text: only the original is read further. */
  copy(): RoundOutput {
    const copy = new RoundOutput(this.tokensMax, this.#answer.copy(), this.#reasoning.copy())
    copy.sealedBytes = this.sealedBytes
    copy.reported = this.reported
    copy.counted = this.counted
    copy.sent = this.sent
    copy.firstMs = this.firstMs
    copy.answerMs = this.answerMs
    copy.#held.push(...this.#held)
    return copy
  }

  copyWithoutHeld(): RoundOutput {
    const copy = this.copy()
    if (!this.hasHeld) return copy
    copy.#held.length = 0
    // The report includes the held text.
    copy.reported = undefined
    return copy
  }

  get hasHeld(): boolean {
    return this.#held.length > 0
  }

  /** `release` adds it to the answer. */
  addHeld(text: string): void {
    this.#held.push(text)
    this.#freshAnswer.push(text)
  }

  release(): void {
    for (const text of this.#held) this.#answer.add(text)
    this.#held.length = 0
  }

  addAnswer(text: string): void {
    if (this.#answer.add(text)) this.#freshAnswer.push(text)
  }

  addReasoning(text: string): void {
    if (this.#reasoning.add(text)) this.#freshReasoning.push(text)
  }

  takeFresh(): { readonly answer: string; readonly reasoning: string } {
    const fresh = { answer: this.#freshAnswer.join(''), reasoning: this.#freshReasoning.join('') }
    this.#freshAnswer = []
    this.#freshReasoning = []
    return fresh
  }

  get isStarted(): boolean {
    return !this.#answer.isEmpty || this.hasHeld || !this.#reasoning.isEmpty || this.sealedBytes > 0
  }

  get answerText(): string {
    return this.#answer.text + this.#held.join('')
  }

  get reasoningText(): string {
    return this.#reasoning.text
  }
}

/** The beginning of a text. An endless upstream must not fill our memory. */
class KeptText {
  readonly #charactersMax: number
  #pieces: string[] = []
  #characters = 0

  constructor(charactersMax: number) {
    this.#charactersMax = charactersMax
  }

  get text(): string {
    return this.#pieces.join('')
  }

  get isEmpty(): boolean {
    return this.#pieces.length === 0
  }

  copy(): KeptText {
    const copy = new KeptText(this.#charactersMax)
    copy.#pieces = [...this.#pieces]
    copy.#characters = this.#characters
    return copy
  }

  /** False when the text is already full. */
  add(piece: string): boolean {
    if (this.#characters >= this.#charactersMax) return false
    this.#pieces.push(piece)
    this.#characters += piece.length
    return true
  }
}
