import type { HiddenReasoning } from '../billing/hidden-reasoning.ts'
import type { Meter } from '../billing/meter.ts'
import type { Round, Tab } from '../billing/tab.ts'

export type TokenCount = { readonly promptTokens: number; readonly completionTokens: number }

export type CountingParts = {
  readonly countTokens: (texts: readonly string[]) => Promise<number>
  readonly hiddenReasoning: HiddenReasoning
}

/**
 * Counts what an open stream has come to, over all its rounds, with every reading only what came since the last. Where two pieces
 * meet a token may be counted twice, never more than one a reading.
 */
export class UsageSoFar {
  readonly #meter: Meter
  readonly #tab: Tab
  readonly #parts: CountingParts
  /** The round that the counts below are of. */
  #round: Round | undefined
  #promptTokens = 0
  #answerTokens = 0
  #summaryTokens = 0
  #reading: Promise<TokenCount | undefined> = Promise.resolve(undefined)

  constructor(meter: Meter, tab: Tab, parts: CountingParts) {
    this.#meter = meter
    this.#tab = tab
    this.#parts = parts
  }

  /** Undefined when a round ended meanwhile: the next reading has it. Readings wait for each other. */
  read(): Promise<TokenCount | undefined> {
    this.#reading = this.#reading.catch(() => {}).then(() => this.#count())
    return this.#reading
  }

  async #count(): Promise<TokenCount | undefined> {
    const { round, finished } = this.#tab
    if (round === undefined) return finished
    const { countTokens, hiddenReasoning } = this.#parts
    const fresh = this.#meter.takeFresh()
    if (this.#round !== round) {
      this.#round = round
      this.#answerTokens = 0
      this.#summaryTokens = 0
      this.#promptTokens = await countTokens(round.input.texts)
    }
    this.#answerTokens += await countTokens([fresh.answer])
    this.#summaryTokens += await countTokens([fresh.reasoning])
    if (this.#tab.round !== round) return undefined
    this.#meter.noteCounted(this.#answerTokens + this.#summaryTokens)
    const hidden = hiddenReasoning.estimate(this.#tab.modelId, this.#meter.sealedBytes)
    const completionTokens = this.#answerTokens + Math.max(this.#summaryTokens, hidden)
    return {
      promptTokens: (finished?.promptTokens ?? 0) + Math.min(this.#promptTokens, round.inputTokensMax),
      completionTokens: (finished?.completionTokens ?? 0) + Math.min(completionTokens, round.maxTokens),
    }
  }
}
