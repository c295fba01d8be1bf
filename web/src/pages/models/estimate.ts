import { fromAtomic, type Usdc } from '../../../../src/money/usdc.ts'
import type { Model } from '../../api/shapes.ts'
import { costOf } from '../../money/explain.ts'
import { usdcPerMillion } from '../../money/format.ts'

// The cost calculator. It prices with the function that explains charges, so an estimate is what such a request is charged.

/** As typed, and as the address of the page has it. */
export type Workload = {
  readonly input: string
  /** Percent of the input tokens that are read from the prompt cache. */
  readonly cached: string
  readonly output: string
  readonly searches: string
  readonly requests: string
}

export const defaultWorkload: Workload = { input: '1000', cached: '0', output: '500', searches: '0', requests: '10000' }

export const workloadExamples: readonly (readonly [name: string, workload: Workload])[] = [
  ['Short question', { ...defaultWorkload, input: '200', output: '300' }],
  ['Summary of ten pages', { ...defaultWorkload, input: '6000', output: '500' }],
  ['Coding agent turn', { ...defaultWorkload, input: '40000', cached: '80', output: '1500' }],
  ['Answer with web search', { ...defaultWorkload, input: '4000', output: '600', searches: '1' }],
]

const tokensMax = 100_000_000
const searchesMax = 1_000
const requestsMax = 1_000_000_000_000

const fields = [
  ['input', tokensMax],
  ['cached', 100],
  ['output', tokensMax],
  ['searches', searchesMax],
  ['requests', requestsMax],
] as const

export type WorkloadProblems = { readonly [Field in keyof Workload]?: string }

/** The error of each field; empty when the workload can be priced. */
export function workloadProblems(workload: Workload): WorkloadProblems {
  return Object.fromEntries(
    fields
      .filter(([field, most]) => !/^\d{1,15}$/.test(workload[field]) || Number(workload[field]) > most)
      .map(([field, most]) => [field, `Enter a whole number from 0 to ${most.toLocaleString('en')}.`]),
  )
}

export type Estimate = { readonly perRequest: Usdc; readonly perMonth: Usdc }

type PricedModel = { readonly pricing: Pick<Model['pricing'], 'prompt' | 'completion' | 'web_search'> }

/** The cost of one request, rounded up as the ledger does, and of all requests. */
export function estimate(model: PricedModel, workload: Workload): Estimate {
  const promptTokens = Number(workload.input)
  const perRequest = costOf({
    usage: {
      prompt_tokens: promptTokens,
      cached_tokens: Math.floor((promptTokens * Number(workload.cached)) / 100),
      completion_tokens: Number(workload.output),
      reasoning_tokens: 0,
    },
    cost: { search_calls: Number(workload.searches), fetch_calls: 0 },
    price: {
      input_per_million: usdcPerMillion(model.pricing.prompt),
      output_per_million: usdcPerMillion(model.pricing.completion),
      search_per_call: model.pricing.web_search ?? '0',
    },
  })
  return { perRequest, perMonth: fromAtomic(perRequest * BigInt(workload.requests)) }
}
