import type { Bill, Round } from '../billing/bill.ts'
import { boundTexts, type InputText, overheadOf } from '../billing/quote.ts'
import { byteBound } from '../inference/tokens.ts'
import {
  inputOf,
  type ModelRequest,
  maxOutputTokensMin,
  type RequestOptions,
  readableTexts,
  type ToolOutput,
  type Turn,
  toModelRequest,
} from '../providers/model-request.ts'
import type { AdmittedRequest } from './admit.ts'
import { closing, notes, type ToolResult, textOf } from './tool-results.ts'
import { answerTokensLeast, resultTokensLeast, type ToolRunner } from './tool-runner.ts'

type Count = (texts: readonly string[]) => Promise<number>

/**
 * Counts the texts of a request's rounds, each once: every round repeats the conversation, which may be long, and texts are counted
 * separately, so their tokens add up. `first` is the first round's input.
 */
export function countEachOnce(first: InputText, count: Count): Count {
  const counts = new Map<string, Promise<number>>()
  const countOne = (text: string) => {
    const known = counts.get(text) ?? count([text])
    counts.set(text, known)
    return known
  }
  const sum = async (texts: readonly string[]) =>
    (await Promise.all(texts.map(countOne))).reduce((total, tokens) => total + tokens, 0)
  let firstTokens = first.tokens
  return async (texts) => {
    const missing = withoutThose(first.texts, texts)
    // These texts are not a round: a round repeats the conversation and lacks at most the definitions of our tools.
    if (2 * byteBound(missing) > byteBound(first.texts)) return sum(texts)
    firstTokens ??= await count(first.texts)
    return firstTokens + (await sum(withoutThose(texts, first.texts))) - (await sum(missing))
  }
}

/** The texts that are missing from the others. A text that occurs twice must occur twice there too. */
function withoutThose(texts: readonly string[], others: readonly string[]): readonly string[] {
  const left = new Map<string, number>()
  for (const other of others) left.set(other, (left.get(other) ?? 0) + 1)
  return texts.filter((text) => {
    const times = left.get(text) ?? 0
    left.set(text, times - 1)
    return times <= 0
  })
}

/** A tool call and its result, in order. */
export type PendingResult = { readonly callId: string; readonly result: ToolResult }

export type RoundPlan = {
  readonly request: ModelRequest
  readonly round: Round
  /** The rounds so far; the last one includes its results as the model will read them. */
  readonly turns: readonly Turn[]
  readonly isLast: boolean
}

export type RoundWish = {
  /** The rounds before the last one. */
  readonly turns: readonly Turn[]
  /** The last round, without its results. */
  readonly last: Omit<Turn, 'results'>
  readonly results: readonly PendingResult[]
  /** Our tools may no longer be called. */
  readonly isLast: boolean
}

export type PlanningParts = {
  readonly admitted: AdmittedRequest
  readonly bill: Bill
  readonly runner: ToolRunner
  readonly count: Count
}

/** The most tokens of one result that the model reads. */
const resultTokensMax = 10_000
/** A result shorter than this is not worth reading. */
const resultTokensMin = 100
/** The output that a round should be able to write, where results must be cut to leave room. */
const answerTokensWanted = 1_024
const cutsMax = 4

/**
 * Plans the round that reads the results, within the request's limit. Extends the hold if it can; otherwise cuts the results, then
 * the answer. Undefined when not even the shortest answer is affordable.
 */
export async function planRound(
  { admitted, bill, runner, count }: PlanningParts,
  wish: RoundWish,
): Promise<RoundPlan | undefined> {
  const { contextLength } = admitted.model
  const whole = await Promise.all(wish.results.map(({ result }) => fit(result, resultTokensMax, count)))
  let draft: Draft = { ...wish, given: whole }
  let inputTokensMax = await boundDraft(admitted, draft, count)
  const step = { searches: 0, inputTokens: inputTokensMax, outputTokens: bill.tokensLeft }
  if (!(await runner.extend(step)) || inputTokensMax + bill.tokensLeft > contextLength) {
    draft = { ...draft, isLast: wish.isLast || runner.closed }
    const base = await boundDraft(admitted, { ...draft, given: whole.map(() => notes.tooLong) }, count)
    draft = { ...draft, given: await cut({ bill, contextLength, count }, whole, base) }
    inputTokensMax = await boundDraft(admitted, draft, count)
  }
  const maxTokens = Math.min(bill.affordableOutput(inputTokensMax), contextLength - inputTokensMax)
  if (maxTokens < maxOutputTokensMin) return undefined
  const request = requestOf(admitted, draft, maxTokens)
  const texts = readableTexts(request)
  const input = { ...inputOf(request), texts, tokens: await count(texts) }
  return { request, round: { input, inputTokensMax, maxTokens }, turns: turnsOf(draft), isLast: draft.isLast }
}

/** A possible round, with the results as the model would read them. */
type Draft = RoundWish & { readonly given: readonly ToolResult[] }

function requestOf(admitted: AdmittedRequest, draft: Draft, maxOutputTokens?: number): ModelRequest {
  const options: RequestOptions = { ...admitted.requestOptions, turns: turnsOf(draft), maxOutputTokens }
  if (!draft.isLast) return toModelRequest(admitted.chat, options)
  // Unchanged tools keep the upstream's prompt cache; the client's own tools must stay callable, though.
  const last = admitted.chat.tools.length === 0 ? { toolChoice: 'none' as const } : { extraTools: [] }
  return toModelRequest(admitted.chat, { ...options, ...last })
}

function turnsOf({ turns, last, results, given, isLast }: Draft): readonly Turn[] {
  const outputs = results.map(({ callId }, index): ToolOutput => {
    const result = isLast && index === results.length - 1 ? closing(given[index]!) : given[index]!
    return { callId, output: textOf(result) }
  })
  return [...turns, { ...last, results: outputs }]
}

/**
 * An upper bound of the round's input. It adds up the bounds that `cut` and `fit` use, so that results that were cut to fit do fit:
 * with a bound of its own, a round could be unaffordable after its page was paid for, and the answer was lost.
 */
async function boundDraft(admitted: AdmittedRequest, draft: Draft, count: Count): Promise<number> {
  const input = inputOf(requestOf(admitted, draft))
  const outputs = turnsOf(draft)
    .at(-1)!
    .results.map(({ output }) => output)
  const rest = withoutThose(input.texts, outputs)
  const bounds = [boundCounted(rest, count), ...outputs.map((output) => boundCounted([output], count))]
  return (await Promise.all(bounds)).reduce((sum, bound) => sum + bound, overheadOf(input))
}

async function boundCounted(texts: readonly string[], count: Count): Promise<number> {
  return boundTexts(texts, await count(texts))
}

/** Divides the remaining input budget among the results, in order. `base` is the round without them. */
async function cut(
  { bill, contextLength, count }: Pick<PlanningParts, 'bill' | 'count'> & { readonly contextLength: number },
  results: readonly ToolResult[],
  base: number,
): Promise<ToolResult[]> {
  const wanted = Math.min(bill.tokensLeft, answerTokensWanted)
  // Results that were paid for must not be lost: rather shorten the answer.
  const isTight = bill.affordableInput(base, wanted) < resultTokensLeast
  const answerTokens = isTight ? Math.min(wanted, answerTokensLeast) : wanted
  let room = Math.min(bill.affordableInput(base, answerTokens), contextLength - base - answerTokens)
  const given: ToolResult[] = []
  for (const [index, result] of results.entries()) {
    const share = Math.floor(room / (results.length - index))
    const fitting = await fit(result, share, count)
    given.push(fitting)
    room -= await boundCounted([textOf(fitting)], count)
  }
  return given
}

/** The result with as much of its body as fits. */
async function fit(result: ToolResult, tokensMax: number, count: Count): Promise<ToolResult> {
  let candidate = result
  for (let attempt = 0; attempt < cutsMax; attempt += 1) {
    const tokens = await boundCounted([textOf(candidate)], count)
    if (tokens <= tokensMax) return candidate
    if (tokensMax < resultTokensMin) break
    const share = (0.9 * tokensMax) / tokens
    candidate = { ...result, body: result.body.slice(0, Math.floor(candidate.body.length * share)) }
  }
  return result.body === '' ? result : notes.tooLong
}
