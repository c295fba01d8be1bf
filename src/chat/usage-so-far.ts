import type { Bill, Round } from '../billing/bill.ts'
import type { HiddenReasoning } from '../billing/hidden-reasoning.ts'

export type TokenCount = { readonly promptTokens: number; readonly completionTokens: number }

export type CountingParts = {
  readonly countTokens: (texts: readonly string[], account: string) => Promise<number>
  readonly hiddenReasoning: HiddenReasoning
}

/**
 * Counts the usage of an open stream over all its rounds. Each reading counts only the text since the last one. A token may be
 * counted twice where two pieces meet: at most one per reading.
 */
export class UsageSoFar {
  readonly #bill: Bill
  readonly #parts: CountingParts
  readonly #account: string
  /** The round that the counts below belong to. */
  #round: Round | undefined
  #promptTokens = 0
  #answerTokens = 0
  #summaryTokens = 0
  #reading: Promise<TokenCount | undefined> = Promise.resolve(undefined)

  /** `account` is the one whose share of the token counter it uses. */
  constructor(bill: Bill, parts: CountingParts, account: string) {
    this.#bill = bill
    this.#parts = parts
    this.#account = account
  }

  /** Undefined when a round ended meanwhile: the next reading includes it. Readings run one at a time. */
  read(): Promise<TokenCount | undefined> {
    this.#reading = this.#reading.catch(() => {}).then(() => this.#count())
    return this.#reading
  }

  async #count(): Promise<TokenCount | undefined> {
    const { round, finished } = this.#bill
    if (round === undefined) return finished
    const { hiddenReasoning } = this.#parts
    const count = (texts: readonly string[]) => this.#parts.countTokens(texts, this.#account)
    const fresh = this.#bill.takeFresh()
    if (this.#round !== round) {
      this.#round = round
      this.#answerTokens = 0
      this.#summaryTokens = 0
      this.#promptTokens = round.input.tokens ?? (await count(round.input.texts))
    }
    this.#answerTokens += await count([fresh.answer])
    this.#summaryTokens += await count([fresh.reasoning])
    if (this.#bill.round !== round) return undefined
    this.#bill.noteCounted(this.#answerTokens + this.#summaryTokens)
    const completionTokens = this.#answerTokens + hiddenReasoning.estimate(this.#bill.seen, this.#summaryTokens)
    return {
      promptTokens: (finished?.promptTokens ?? 0) + Math.min(this.#promptTokens, round.inputTokensMax),
      completionTokens: (finished?.completionTokens ?? 0) + Math.min(completionTokens, round.maxTokens),
    }
  }
}
