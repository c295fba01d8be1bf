import { cost } from '../../../../src/money/price.ts'
import type { Usdc } from '../../../../src/money/usdc.ts'
import { perMillion } from '../../money/token-price.ts'

/** Prices of a model as the list has them: USDC for one token, such as `0.000005`. */
export type TokenPrices = { readonly prompt: string; readonly completion: string }

/** Four characters a token is the usual rule of thumb; the charge itself is counted, not estimated. */
const charactersPerToken = 4

/** What a running answer has cost so far, about: an estimate for the eye, replaced by the charge when it ends. */
export function runningCost(prices: TokenPrices, promptCharacters: number, answerCharacters: number): Usdc {
  return cost([
    { units: Math.ceil(promptCharacters / charactersPerToken), perMillion: perMillion(prices.prompt) },
    { units: Math.ceil(answerCharacters / charactersPerToken), perMillion: perMillion(prices.completion) },
  ])
}
