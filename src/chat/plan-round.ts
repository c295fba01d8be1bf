import { boundInput } from '../billing/quote.ts'
import type { Round, Tab } from '../billing/tab.ts'
import {
  type FunctionCallOutputItem,
  type InputItem,
  inputItemCount,
  inputOf,
  type MappingOptions,
  maxOutputTokensMin,
  type ResponsesRequest,
  readableTexts,
  toResponsesRequest,
} from '../inference/responses-request.ts'
import { byteBound } from '../inference/tokens.ts'
import type { Order } from './admit.ts'
import { answerTokensLeast, resultTokensLeast, type ToolDesk } from './tool-desk.ts'
import { closing, notes, type ToolResult, textOf } from './tool-results.ts'

type Count = (texts: readonly string[]) => Promise<number>

/** What a model called and what came of it, in order. */
export type PendingResult = { readonly callId: string; readonly result: ToolResult }

export type RoundPlan = {
  readonly request: ResponsesRequest
  readonly round: Round
  /** All that was said and told behind the conversation, with these results as they were given. */
  readonly items: readonly InputItem[]
  readonly isLast: boolean
}

export type RoundWish = {
  /** The items of the rounds before. */
  readonly items: readonly InputItem[]
  readonly results: readonly PendingResult[]
  /** None of our tools may be called any more. */
  readonly isLast: boolean
}

/** The most that one result may make the model read. */
const resultTokensMax = 10_000
/** Less of a result than this is not worth reading. */
const resultTokensMin = 100
/** What a round shall at least be able to write, where results have to be cut to leave room. */
const answerTokensWanted = 1_024
const cutsMax = 4

/**
 * The round that reads the results, within what the request may cost: the hold is extended where that is allowed, else
 * the results are cut, and the answer with them. Undefined when not even the shortest answer is left.
 */
export async function planRound(
  order: Order,
  tab: Tab,
  desk: ToolDesk,
  wish: RoundWish,
  count: Count,
): Promise<RoundPlan | undefined> {
  const { contextLength } = order.model
  const whole = await Promise.all(wish.results.map(({ result }) => fit(result, resultTokensMax, count)))
  let draft: Draft = { ...wish, given: whole }
  let inputTokensMax = await boundDraft(order, draft, count)
  const step = { searches: 0, inputTokens: inputTokensMax, outputTokens: tab.tokensLeft }
  if (!(await desk.extend(step)) || inputTokensMax + tab.tokensLeft > contextLength) {
    draft = { ...draft, isLast: wish.isLast || desk.closed }
    const base = await boundDraft(order, { ...draft, given: whole.map(() => notes.tooLong) }, count)
    draft = { ...draft, given: await cut(whole, base, tab, contextLength, count) }
    inputTokensMax = await boundDraft(order, draft, count)
  }
  const maxTokens = Math.min(tab.affordableOutput(inputTokensMax), contextLength - inputTokensMax)
  if (maxTokens < maxOutputTokensMin) return undefined
  const request = requestOf(order, draft, maxTokens)
  const input = { texts: readableTexts(request), itemCount: inputItemCount(request) }
  return { request, round: { input, inputTokensMax, maxTokens }, items: itemsOf(draft), isLast: draft.isLast }
}

/** A round that may be asked for, with the results as they would be given. */
type Draft = RoundWish & { readonly given: readonly ToolResult[] }

function requestOf(order: Order, draft: Draft, maxOutputTokens?: number): ResponsesRequest {
  const options: MappingOptions = { ...order.mapping, extraInput: itemsOf(draft), maxOutputTokens }
  if (!draft.isLast) return toResponsesRequest(order.chat, options)
  // Tools that stay as they are keep the upstream's cache of the prompt; the client's own must stay callable, though.
  const last = order.chat.tools.length === 0 ? { toolChoice: 'none' as const } : { extraTools: [] }
  return toResponsesRequest(order.chat, { ...options, ...last })
}

function itemsOf({ items, results, given, isLast }: Draft): readonly InputItem[] {
  const outputs = results.map(({ callId }, index): FunctionCallOutputItem => {
    const result = isLast && index === results.length - 1 ? closing(given[index]!) : given[index]!
    return { type: 'function_call_output', call_id: callId, output: textOf(result) }
  })
  return [...items, ...outputs]
}

function boundDraft(order: Order, draft: Draft, count: Count): Promise<number> {
  const request = requestOf(order, draft)
  return boundInput(inputOf(request), count)
}

/** Shares out what is left to read among the results, those that come first first. `base` is the round without them. */
async function cut(
  results: readonly ToolResult[],
  base: number,
  tab: Tab,
  contextLength: number,
  count: Count,
): Promise<ToolResult[]> {
  const wanted = Math.min(tab.tokensLeft, answerTokensWanted)
  // Results that were paid for must not be lost: where they would be, the answer may be short.
  const isTight = tab.affordableInput(base, wanted) < resultTokensLeast
  const answerTokens = isTight ? Math.min(wanted, answerTokensLeast) : wanted
  let room = Math.min(tab.affordableInput(base, answerTokens), contextLength - base - answerTokens)
  const given: ToolResult[] = []
  for (const [index, result] of results.entries()) {
    const share = Math.floor(room / (results.length - index))
    const fitting = await fit(result, share, count)
    given.push(fitting)
    room -= await tokensMaxOf(fitting, count)
  }
  return given
}

/** The result with as much of its body as may be read. */
async function fit(result: ToolResult, tokensMax: number, count: Count): Promise<ToolResult> {
  let candidate = result
  for (let attempt = 0; attempt < cutsMax; attempt += 1) {
    const tokens = await tokensMaxOf(candidate, count)
    if (tokens <= tokensMax) return candidate
    if (tokensMax < resultTokensMin) break
    const share = (0.9 * tokensMax) / tokens
    candidate = { ...result, body: result.body.slice(0, Math.floor(candidate.body.length * share)) }
  }
  return result.body === '' ? result : notes.tooLong
}

/** A true upper bound, as for a whole request. */
async function tokensMaxOf(result: ToolResult, count: Count): Promise<number> {
  const text = textOf(result)
  const bytes = byteBound([text])
  return bytes <= 1_024 ? bytes : Math.min(bytes, Math.ceil((await count([text])) * 1.1))
}
