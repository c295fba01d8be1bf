import type { Usdc } from '../money/usdc.ts'
import type { JsonObject } from './parameter.ts'

export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'content_filter'

/** A source of the answer. The indices count UTF-16 units of the whole content. */
export type Annotation = {
  readonly url: string
  readonly title: string
  readonly startIndex: number
  readonly endIndex: number
}

/** Why a call of one of our tools was not run: `max_tokens` leaves no room for an answer, or the hold could not be extended. */
export type ToolRefusalReason = 'max_tokens_spent' | 'budget_spent'

/** Progress of one of our tools, sent to the client while it waits. */
export type ToolActivity = {
  readonly type: 'web_search' | 'web_fetch'
  readonly status: 'started' | 'completed' | 'failed'
  readonly call: number
  readonly query?: string | undefined
  readonly url?: string | undefined
  readonly results?: number | undefined
  /** Set with `failed`, for a call that was not run at all. */
  readonly reason?: ToolRefusalReason | undefined
}

/** The next part of a text. When the upstream only signals a new paragraph, we insert the separator. */
type Piece = {
  readonly text: string
  /** Number of leading characters that we inserted. The model did not write them, so they are not charged. */
  readonly jointLength?: number
}

/** Parts of tool calls, one call after another: the arguments of one call are complete before the next call begins. */
export type CallEvent =
  | { readonly type: 'tool-call'; readonly index: number; readonly id: string; readonly name: string }
  | { readonly type: 'tool-arguments'; readonly index: number; readonly text: string }

/** A finished output item, which the next round must replay. */
export type ItemEvent = {
  readonly type: 'item'
  /** Its index in the output. */
  readonly index: number
  /** Exactly as received. Only the provider that wrote it can read it. */
  readonly item: JsonObject
  /** Its text, which earlier events have already delivered. */
  readonly said?: string
  /** Ids of the calls in it. */
  readonly callIds?: readonly string[]
  /** Size in bytes of the encrypted reasoning in it, which only the provider can read. */
  readonly sealedBytes?: number
}

/** The events of an answer, independent of the upstream's and the client's protocol. */
export type ChatEvent =
  /** The upstream has begun to answer: the client's headers can be sent. */
  | { readonly type: 'accepted' }
  | ({ readonly type: 'text' } & Piece)
  | ({ readonly type: 'reasoning' } & Piece)
  | { readonly type: 'refusal'; readonly text: string }
  | CallEvent
  | { readonly type: 'annotation'; readonly annotation: Annotation }
  | { readonly type: 'activity'; readonly activity: ToolActivity }
  /** The cost of the answer so far, by our own count. */
  | { readonly type: 'cost'; readonly cost: Usdc; readonly promptTokens: number; readonly completionTokens: number }
  | ItemEvent
  /** Encrypted reasoning apart from an item, of this size in bytes. */
  | { readonly type: 'sealed-reasoning'; readonly bytes: number }
  /** What the upstream reports before the end of the answer: see `readUsage`. */
  | { readonly type: 'usage-so-far'; readonly usage: unknown }
  /** The normal end. `usage` is as reported: see `readUsage`. */
  | { readonly type: 'finish'; readonly reason: FinishReason; readonly usage?: unknown }
  /** The end by failure. `message` may be shown to the customer: see `failureError`. */
  | { readonly type: 'failed'; readonly code: string; readonly message: string; readonly usage?: unknown }

/** Separates two texts of one answer. */
export const paragraph = '\n\n'

/** The first part of a new paragraph. */
export function nextParagraph(type: 'text' | 'reasoning', text: string): ChatEvent & Piece {
  return { type, text: paragraph + text, jointLength: paragraph.length }
}

/** The part of the text that the model wrote. */
export function writtenText({ text, jointLength }: Piece): string {
  return jointLength === undefined ? text : text.slice(jointLength)
}

/** Whether the event shows model output to the customer. Before the first one, another provider can take over. */
export function isOutput({ type }: ChatEvent): boolean {
  return type === 'text' || type === 'reasoning' || type === 'refusal' || type === 'tool-call'
}
