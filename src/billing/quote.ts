import { maxTokensDefault } from '../inference/chat-parameters.ts'
import { byteBound, bytesPerTokenMax } from '../inference/tokens.ts'
import { cost, type Line, unitsFor } from '../money/price.ts'
import type { Usdc } from '../money/usdc.ts'
import type { Model } from './price-list.ts'

/** The most a request can cost without web search, with its parts. */
export type Quote = {
  readonly amount: Usdc
  readonly inputTokensMax: number
  readonly maxTokens: number
  readonly lines: readonly Line[]
}

/** Everything that the upstream will count as input. */
export type InputText = {
  readonly texts: readonly string[]
  /** The tokens of the texts by our tokenizer; undefined until they are counted. */
  readonly tokens?: number | undefined
  /** Messages, calls, results and tools: each adds a few tokens of framing. */
  readonly itemCount: number
  /** Values and properties in the schemas of tools and of the answer: the upstream rewrites schemas and adds framing to each. */
  readonly schemaEntryCount?: number
}

// A token is at least one byte, so the bytes bound the tokens. Short prompts: an exact count costs more CPU time than the small
// excess hold is worth. Long prompts: the count is worth it.
const countedBytesMin = 4096
const itemOverheadTokens = 8
const entryOverheadTokens = 3
const requestOverheadTokens = 32
// Ten percent margin: token counts differ slightly where texts are joined.
const countMargin = 1.1

type CountInput = (texts: readonly string[], bytes: number) => Promise<number>

/** An upper bound of the input tokens: a charge must never exceed its quote. Calls `count` for long input only. */
export async function boundInput(input: InputText, count: CountInput): Promise<number> {
  const bytes = byteBound(input.texts)
  if (bytes <= countedBytesMin) return bytes + overheadOf(input)
  return boundTexts(input.texts, await count(input.texts, bytes)) + overheadOf(input)
}

/** An upper bound of the tokens that a provider counts for these texts, given our own count. */
export function boundTexts(texts: readonly string[], tokens: number): number {
  return Math.min(byteBound(texts), Math.ceil(tokens * countMargin))
}

/** `boundInput` for quotes: longer input never gets a lower quote because it is counted instead of measured. */
export async function boundQuotedInput(input: InputText, count: CountInput): Promise<number> {
  let isCounted = false
  const bound = await boundInput(input, (texts, bytes) => {
    isCounted = true
    return count(texts, bytes)
  })
  return isCounted ? Math.max(bound, countedBytesMin + overheadOf(input)) : bound
}

/** No tokenizer makes more tokens of this input. */
export function inputTokensLimit(input: InputText): number {
  return byteBound(input.texts) + overheadOf(input)
}

/** The framing around the texts. */
export function overheadOf({ itemCount, schemaEntryCount = 0 }: Omit<InputText, 'texts'>): number {
  return requestOverheadTokens + itemOverheadTokens * itemCount + entryOverheadTokens * schemaEntryCount
}

// The framing of a message and of the answer, from the OpenAI token-counting recipe.
const itemTokens = 3
const replyTokens = 3

/** The expected input tokens, given the tokens of the texts: our best estimate of the upstream's count. */
export function framedTokens(textTokens: number, { itemCount }: Pick<InputText, 'itemCount'>): number {
  return textTokens + itemTokens * itemCount + replyTokens
}

/** The lowest possible cost of input of this many bytes, whatever its token count. */
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
/** The most tokens of results and earlier output that all later rounds together may read, in addition to the input. */
const searchReadingTokensMax = 100_000

/** The most that a searching request can cost beyond its quote: its searches, and the input of later rounds. */
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

/** A generous input bound for a short prompt with our tools offered. */
const shortPromptTokens = 1_000

export type RequestLimits = { readonly promptTokens: number; readonly completionTokens: number }

/** The largest requests under a cap: output for a short prompt, and input with the default `max_tokens`. */
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
