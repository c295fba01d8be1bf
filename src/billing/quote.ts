import { maxTokensDefault } from '../inference/chat-request.ts'
import { byteBound, bytesPerTokenMax } from '../inference/tokens.ts'
import { cost, type Line, unitsFor } from '../money/price.ts'
import type { Usdc } from '../money/usdc.ts'
import type { Model } from './price-list.ts'

/** The most a request can cost without web search, and what that is made of. */
export type Quote = {
  readonly amount: Usdc
  readonly inputTokensMax: number
  readonly maxTokens: number
  readonly lines: readonly Line[]
}

/** Everything that the upstream will count as input. */
export type InputText = {
  readonly texts: readonly string[]
  /** Messages, calls, results and tools: each adds a few tokens of framing. */
  readonly itemCount: number
  /** Values and properties in schemas of tools and of the answer: the upstream rewrites schemas, and frames each of these too. */
  readonly schemaEntryCount?: number
}

// A token is at least one byte, so the bytes bound the tokens. Counting exactly is dearer than the little money that a
// short prompt's slack locks up for a moment; for a long one it is the other way round.
const countedBytesMin = 4096
const itemOverheadTokens = 8
const entryOverheadTokens = 3
const requestOverheadTokens = 32
// Ten percent for what a count of the parts can miss: tokens differ a little where texts are joined.
const countMargin = 1.1

type CountInput = (texts: readonly string[], bytes: number) => Promise<number>

/** A true upper bound of the input tokens: what is quoted must never be passed. `count` is called for long input only. */
export async function boundInput(input: InputText, count: CountInput): Promise<number> {
  const bytes = byteBound(input.texts)
  if (bytes <= countedBytesMin) return bytes + overheadOf(input)
  return Math.min(bytes, Math.ceil((await count(input.texts, bytes)) * countMargin)) + overheadOf(input)
}

/** The same for what is quoted: longer input is never quoted at less because it is counted instead of measured. */
export async function boundQuotedInput(input: InputText, count: CountInput): Promise<number> {
  let isCounted = false
  const bound = await boundInput(input, (texts, bytes) => {
    isCounted = true
    return count(texts, bytes)
  })
  return isCounted ? Math.max(bound, countedBytesMin + overheadOf(input)) : bound
}

function overheadOf({ itemCount, schemaEntryCount = 0 }: InputText): number {
  return requestOverheadTokens + itemOverheadTokens * itemCount + entryOverheadTokens * schemaEntryCount
}

/** The least that input of so many bytes costs, whatever its tokens are counted to. */
export function leastInputCost(model: Model, bytes: number): Usdc {
  return cost([inputLine(model, Math.ceil(bytes / bytesPerTokenMax))])
}

export function quote(model: Model, inputTokensMax: number, maxTokens: number): Quote {
  const lines = [inputLine(model, inputTokensMax), outputLine(model, maxTokens)]
  return { amount: cost(lines), inputTokensMax, maxTokens, lines }
}

export const searchesMax = 3
/** Rounds after the first: one for every search and page that a request may use. */
export const furtherRoundsMax = 8
/** The tokens of results, and of what the model wrote before, that all further rounds together may read beside the input. */
const searchReadingTokensMax = 100_000

/** The most that a request which may search can cost beyond its quote: its searches, and what the further rounds read. */
export function searchMax(model: Model, inputTokensMax: number, searchPerCall: bigint): Usdc {
  return cost([
    { units: searchesMax, perMillion: searchPerCall * 1_000_000n },
    inputLine(model, furtherRoundsMax * inputTokensMax + searchReadingTokensMax),
  ])
}

/** The largest `max_tokens` whose quote fits the amount, 0 when none does. */
export function affordableMaxTokens(model: Model, inputTokensMax: number, amount: Usdc): number {
  const left = (amount - cost([inputLine(model, inputTokensMax)])) as Usdc
  const tokens = Number(unitsFor(left, model.outputPerMillion))
  return Math.min(tokens, model.maxOutputTokens)
}

/** The input bound of a short prompt with our tools offered, generously: what a request limit leaves for the other side. */
const shortPromptTokens = 1_000

export type RequestLimits = { readonly promptTokens: number; readonly completionTokens: number }

/** The most that is admitted under a cap: of output for a short prompt, and of input with the default `max_tokens`. */
export function requestLimits(model: Model, cap: Usdc): RequestLimits {
  const outputTokens = Math.min(maxTokensDefault, model.maxOutputTokens)
  const left = (cap - cost([outputLine(model, outputTokens)])) as Usdc
  const bound = Number(unitsFor(left, model.inputPerMillion)) - shortPromptTokens
  const readable = model.contextLength - outputTokens - shortPromptTokens
  return {
    promptTokens: Math.max(0, Math.min(Math.floor(bound / countMargin), readable)),
    completionTokens: Math.max(0, affordableMaxTokens(model, shortPromptTokens, cap)),
  }
}

export function inputLine(model: Model, tokens: number): Line {
  return { units: tokens, perMillion: model.inputPerMillion }
}

export function outputLine(model: Model, tokens: number): Line {
  return { units: tokens, perMillion: model.outputPerMillion }
}
