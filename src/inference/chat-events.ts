import type { CallEvent } from './ordered-calls.ts'
import type { JsonObject } from './parameter.ts'

export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'content_filter'

/** A source of the answer; the indices are characters of the whole content. */
export type Annotation = {
  readonly url: string
  readonly title: string
  readonly startIndex: number
  readonly endIndex: number
}

/** One of our tools at work, told to the client while it waits. */
export type ToolActivity = {
  readonly type: 'web_search' | 'web_fetch'
  readonly status: 'started' | 'completed' | 'failed'
  readonly call: number
  readonly query?: string | undefined
  readonly url?: string | undefined
  readonly results?: number | undefined
}

/** What happens in an answer, in plain words: neither the upstream's protocol nor the client's. */
export type ChatEvent =
  /** The upstream took the request. */
  | { readonly type: 'accepted' }
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'reasoning'; readonly text: string }
  | { readonly type: 'refusal'; readonly text: string }
  | CallEvent
  | { readonly type: 'annotation'; readonly annotation: Annotation }
  | { readonly type: 'activity'; readonly activity: ToolActivity }
  /** A finished output item exactly as received, with its position in the output: what a further round must replay. */
  | { readonly type: 'item'; readonly index: number; readonly item: JsonObject }
  /** The end. `usage` is as reported: see `readUsage`. */
  | { readonly type: 'finish'; readonly reason: FinishReason; readonly usage?: unknown }
  /** The end, badly. `message` is fit for the customer: see `failureError`. */
  | { readonly type: 'failed'; readonly code: string; readonly message: string; readonly usage?: unknown }
