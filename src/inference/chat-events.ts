import type { Usdc } from '../money/usdc.ts'
import type { JsonObject } from './parameter.ts'

export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'content_filter'

/** A source of the answer; the indices are UTF-16 units of the whole content. */
export type Annotation = {
  readonly url: string
  readonly title: string
  readonly startIndex: number
  readonly endIndex: number
}

/** Why a call of one of our tools was not run: `max_tokens` leaves no room for an answer, or money for it could not be held. */
export type ToolRefusalReason = 'max_tokens_spent' | 'budget_spent'

/** One of our tools at work, told to the client while it waits. */
export type ToolActivity = {
  readonly type: 'web_search' | 'web_fetch'
  readonly status: 'started' | 'completed' | 'failed'
  readonly call: number
  readonly query?: string | undefined
  readonly url?: string | undefined
  readonly results?: number | undefined
  /** With `failed`, for a call that was not run at all. */
  readonly reason?: ToolRefusalReason | undefined
}

/** The next piece of a text. Where a paragraph begins that the upstream only says is another one, we part it from the last. */
type Piece = {
  readonly text: string
  /** The characters at its beginning that are ours. The model did not write them, and nobody pays for them. */
  readonly jointLength?: number
}

/** Pieces of calls, one call after the other: the arguments of one are whole before the next begins. */
export type CallEvent =
  | { readonly type: 'tool-call'; readonly index: number; readonly id: string; readonly name: string }
  | { readonly type: 'tool-arguments'; readonly index: number; readonly text: string }

/** A finished piece of the output: what a further round must replay. */
export type ItemEvent = {
  readonly type: 'item'
  /** Its position in the output. */
  readonly index: number
  /** Exactly as received. Only the provider that wrote it can read it. */
  readonly item: JsonObject
  /** The text in it, which has been told before. */
  readonly said?: string
  /** The calls in it. */
  readonly callIds?: readonly string[]
  /** The size of the reasoning in it that only the provider can read. */
  readonly sealedBytes?: number
}

/** What happens in an answer, in plain words: neither the upstream's protocol nor the client's. */
export type ChatEvent =
  /** The upstream took the request. */
  | { readonly type: 'accepted' }
  | ({ readonly type: 'text' } & Piece)
  | ({ readonly type: 'reasoning' } & Piece)
  | { readonly type: 'refusal'; readonly text: string }
  | CallEvent
  | { readonly type: 'annotation'; readonly annotation: Annotation }
  | { readonly type: 'activity'; readonly activity: ToolActivity }
  /** What the answer has cost so far, by our own count. */
  | { readonly type: 'cost'; readonly cost: Usdc; readonly promptTokens: number; readonly completionTokens: number }
  | ItemEvent
  /** The end. `usage` is as reported: see `readUsage`. */
  | { readonly type: 'finish'; readonly reason: FinishReason; readonly usage?: unknown }
  /** The end, badly. `message` is fit for the customer: see `failureError`. */
  | { readonly type: 'failed'; readonly code: string; readonly message: string; readonly usage?: unknown }

/** Between two texts of one answer. */
export const paragraph = '\n\n'

/** A piece that begins a further paragraph. */
export function nextParagraph(type: 'text' | 'reasoning', text: string): ChatEvent & Piece {
  return { type, text: paragraph + text, jointLength: paragraph.length }
}

/** What the model wrote of a piece. */
export function writtenText({ text, jointLength }: Piece): string {
  return jointLength === undefined ? text : text.slice(jointLength)
}

/** What a customer can see of the model's own writing. Before it another provider can take over. */
export function isOutput({ type }: ChatEvent): boolean {
  return type === 'text' || type === 'reasoning' || type === 'refusal' || type === 'tool-call'
}
