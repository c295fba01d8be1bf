import type { RequestUsage } from '../ledger/hold-calls.ts'
import { cost, type Line, unitsFor } from '../money/price.ts'
import { fromAtomic, type Usdc, zero } from '../money/usdc.ts'
import type { Model } from './price-list.ts'
import { type InputText, inputLine, outputLine, type Quote } from './quote.ts'

/** One answer of the upstream: what it is given to read, and how much it may write. */
export type Round = {
  readonly input: InputText
  readonly inputTokensMax: number
  readonly maxTokens: number
}

/** Something that is about to be paid for, at its dearest. */
export type Step = { readonly searches: number; readonly inputTokens: number; readonly outputTokens: number }

/**
 * What a request has come to while it is served, and the most that it may come to: its quote, and whatever its hold was
 * extended by. Every round and every search is planned within that limit, so the charge never passes it.
 */
export class Tab {
  readonly #model: Model
  readonly #quote: Quote
  readonly #searchPerCall: bigint
  #extended: Usdc = zero
  #finished: RequestUsage | undefined
  #round: Round | undefined
  #searchCalls = 0
  #fetchCalls = 0

  constructor(model: Model, quote: Quote, searchPerCall: bigint, input: InputText) {
    this.#model = model
    this.#quote = quote
    this.#searchPerCall = searchPerCall
    this.#round = { input, inputTokensMax: quote.inputTokensMax, maxTokens: quote.maxTokens }
  }

  get modelId(): string {
    return this.#model.id
  }

  /** The round that is being written; undefined between two rounds. */
  get round(): Round | undefined {
    return this.#round
  }

  /** Of the rounds that are finished; undefined while the first is being written. */
  get finished(): RequestUsage | undefined {
    return this.#finished
  }

  get searchCalls(): number {
    return this.#searchCalls
  }

  get fetchCalls(): number {
    return this.#fetchCalls
  }

  get searchCost(): Usdc {
    return fromAtomic(BigInt(this.#searchCalls) * this.#searchPerCall)
  }

  get limit(): Usdc {
    return fromAtomic(this.#quote.amount + this.#extended)
  }

  /** By how much the hold was extended, all told. */
  get extended(): Usdc {
    return this.#extended
  }

  /** What is left of the tokens that the client asked for, over all rounds. */
  get tokensLeft(): number {
    return Math.max(0, this.#quote.maxTokens - (this.#finished?.completionTokens ?? 0))
  }

  /** A copy that later rounds and searches do not change: the bill of a client that leaves now. */
  snapshot(): Tab {
    const copy = new Tab(this.#model, this.#quote, this.#searchPerCall, { texts: [], itemCount: 0 })
    copy.#extended = this.#extended
    copy.#finished = this.#finished
    copy.#round = this.#round
    copy.#searchCalls = this.#searchCalls
    copy.#fetchCalls = this.#fetchCalls
    return copy
  }

  beginRound(round: Round): void {
    this.#round = round
  }

  finishRound(usage: RequestUsage): void {
    this.#finished = this.sum(usage)
    this.#round = undefined
  }

  addSearch(): void {
    this.#searchCalls += 1
  }

  addFetch(): void {
    this.#fetchCalls += 1
  }

  /** By how much the hold has to be extended, all told, for this step to be within it; 0 when it is. */
  extensionFor(step: Step): Usdc {
    const beyond = this.#costWith(step) - this.#quote.amount
    return fromAtomic(beyond <= this.#extended ? 0n : beyond)
  }

  /** The hold was extended to this, all told. */
  extendTo(total: Usdc): void {
    this.#extended = total
  }

  /** How many tokens a round that reads so many may write, within the limit and the asked count. */
  affordableOutput(inputTokens: number): number {
    const room = this.limit - this.#costWith({ inputTokens })
    return Math.min(this.tokensLeft, Number(unitsFor(fromAtomic(room), this.#model.outputPerMillion)))
  }

  /** How many more tokens a round that reads so many could read, and still write as many as are named. */
  affordableInput(inputTokens: number, outputTokens: number): number {
    const room = this.limit - this.#costWith({ inputTokens, outputTokens })
    return Number(unitsFor(fromAtomic(room), this.#model.inputPerMillion))
  }

  /** All rounds together, with one more; its source is ours as soon as one of them was counted by us. */
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

  /** What a usage of all rounds and the searches cost together, rounded up once. */
  costOf({ promptTokens, completionTokens }: Pick<RequestUsage, 'promptTokens' | 'completionTokens'>): Usdc {
    return cost([...this.#tokenLines(promptTokens, completionTokens), this.#searchLine(this.#searchCalls)])
  }

  /** What is finished, and this step. */
  #costWith({ searches = 0, inputTokens, outputTokens = 0 }: Partial<Step> & { readonly inputTokens: number }): Usdc {
    const { promptTokens = 0, completionTokens = 0 } = this.#finished ?? {}
    return cost([
      ...this.#tokenLines(promptTokens + inputTokens, completionTokens + outputTokens),
      this.#searchLine(this.#searchCalls + searches),
    ])
  }

  #tokenLines(inputTokens: number, outputTokens: number): readonly Line[] {
    return [inputLine(this.#model, inputTokens), outputLine(this.#model, outputTokens)]
  }

  #searchLine(calls: number): Line {
    return { units: calls, perMillion: this.#searchPerCall * 1_000_000n }
  }
}
