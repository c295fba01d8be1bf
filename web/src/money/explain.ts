import { cost, type Line } from '../../../src/money/price.ts'
import { fromAtomic, parse, type Usdc } from '../../../src/money/usdc.ts'
import type { Millionths } from './format.ts'

// The lines of a charge, recomputed from counts and prices by the same function that charged it.

/** What must be known of a request to explain its charge: counts and prices, no amounts. */
export type Chargeable = {
  readonly usage: {
    readonly prompt_tokens: number
    readonly completion_tokens: number
    readonly reasoning_tokens: number
    readonly cached_tokens: number
  } | null
  readonly cost: { readonly search_calls: number; readonly fetch_calls: number }
  readonly price: {
    readonly input_per_million: string
    readonly output_per_million: string
    readonly search_per_call: string
  } | null
  readonly charged_atomic: string
  readonly held_atomic: string
  readonly extended_atomic: string
}

export type ExplainedLine = {
  readonly item: 'input' | 'cached' | 'output' | 'reasoning' | 'search' | 'fetch'
  readonly units: number
  /** USDC, for a million tokens or for one call. */
  readonly price: string
  readonly amount: Millionths
}

export type Explanation = {
  readonly lines: readonly ExplainedLine[]
  /** What rounding the sum up to a whole atomic unit adds. */
  readonly rounding: Millionths
  /** The sum of the lines, rounded up once. */
  readonly recomputed: Usdc
  /** What goes beyond the hold, and is not charged. */
  readonly borneByUs: Usdc
  /** The recomputed charge is the charge in the ledger, to the atomic unit. */
  readonly agrees: boolean
}

export function explainCharge(request: Chargeable): Explanation {
  const charged = BigInt(request.charged_atomic)
  const priced = charged === 0n ? [] : pricedLines(request)
  const recomputed = cost(priced.map(({ line }) => line))
  const exact = priced.reduce((sum, { explained }) => sum + explained.amount, 0n)
  const held = BigInt(request.held_atomic) + BigInt(request.extended_atomic)
  const borneByUs = fromAtomic(recomputed > held ? recomputed - held : 0n)
  return {
    lines: priced.map(({ explained }) => explained),
    rounding: recomputed * millionth - exact,
    recomputed,
    borneByUs,
    agrees: recomputed - borneByUs === charged,
  }
}

/** What counts at these prices cost, rounded up once: the sum of the same lines that explain a charge. */
export function costOf(work: Pick<Chargeable, 'usage' | 'cost' | 'price'>): Usdc {
  return cost(pricedLines(work).map(({ line }) => line))
}

const millionth = 1_000_000n

type PricedLine = { readonly line: Line; readonly explained: ExplainedLine }

function pricedLines({
  usage,
  price,
  cost: { search_calls, fetch_calls },
}: Pick<Chargeable, 'usage' | 'cost' | 'price'>): PricedLine[] {
  if (price === null) return []
  const tokens = usage ?? { prompt_tokens: 0, completion_tokens: 0, reasoning_tokens: 0, cached_tokens: 0 }
  const all = [
    priced('input', tokens.prompt_tokens - tokens.cached_tokens, price.input_per_million),
    priced('cached', tokens.cached_tokens, price.input_per_million),
    priced('output', tokens.completion_tokens - tokens.reasoning_tokens, price.output_per_million),
    priced('reasoning', tokens.reasoning_tokens, price.output_per_million),
    priced('search', search_calls, price.search_per_call, millionth),
    priced('fetch', fetch_calls, '0', millionth),
  ]
  return all.filter(({ explained }) => explained.units > 0 || explained.item === 'input' || explained.item === 'output')
}

/** `scale`: a million for a price per call; prices of tokens are per million already. */
function priced(item: ExplainedLine['item'], units: number, price: string, scale = 1n): PricedLine {
  const perMillion = parse(price) * scale
  return { line: { units, perMillion }, explained: { item, units, price, amount: BigInt(units) * perMillion } }
}
