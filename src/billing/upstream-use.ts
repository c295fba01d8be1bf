import { type AbsurdUsage, readUsage, type Usage } from '../inference/usage.ts'
import type { UpstreamRecord } from '../ledger/hold-calls.ts'
import { cost, type Line } from '../money/price.ts'
import type { Rates, Route } from '../providers/routes.ts'

type Tokens = Pick<Usage, 'promptTokens' | 'completionTokens'> & Partial<Pick<Usage, 'cachedTokens'>>

/**
 * The providers that one request was sent to, and their charges to us. Kept apart from the bill: nothing here changes the
 * customer's charge.
 */
export class UpstreamUse {
  #provider: string | undefined
  #attempts = 0
  readonly #lines: Line[] = []
  #isUnknown = false
  /** The rates of a round without reported usage. */
  #uncounted: { readonly rates: Rates | undefined } | undefined

  attempted(provider: string): void {
    this.#provider = provider
    this.#attempts += 1
  }

  /**
   * Ends a round. `reported` is the provider's raw usage. Providers charge nothing for a failure without output; for output without
   * usage, call `counted` next.
   */
  roundEnded({ rates }: Route, reported: unknown, hasOutput: boolean): void {
    const usage: Usage | AbsurdUsage | undefined = readUsage(reported)
    if (usage !== undefined && !('absurd' in usage)) this.#add(rates, usage)
    else if (hasOutput) this.#uncounted = { rates }
  }

  /** Our own count of the last round; ignored when its provider reported one. */
  counted(tokens: Tokens): void {
    if (this.#uncounted === undefined) return
    this.#add(this.#uncounted.rates, tokens)
    this.#uncounted = undefined
  }

  get record(): UpstreamRecord {
    const isKnown = !this.#isUnknown && this.#uncounted === undefined
    return { provider: this.#provider, attempts: this.#attempts, cost: isKnown ? cost(this.#lines) : undefined }
  }

  #add(rates: Rates | undefined, { promptTokens, cachedTokens = 0, completionTokens }: Tokens): void {
    if (rates === undefined) this.#isUnknown ||= promptTokens + completionTokens > 0
    else {
      this.#lines.push({ units: promptTokens - cachedTokens, perMillion: rates.inputPerMillion })
      this.#lines.push({ units: cachedTokens, perMillion: rates.cachedInputPerMillion })
      this.#lines.push({ units: completionTokens, perMillion: rates.outputPerMillion })
    }
  }
}
