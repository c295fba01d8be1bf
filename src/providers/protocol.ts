import type { ChatEvent } from '../inference/chat-events.ts'
import type { ModelRequest } from './model-request.ts'

/** A protocol that upstream servers speak: how a request is written, and how an answer is read. */
export type Protocol = {
  /** Below the base address. */
  readonly path: string
  /** The body of a request. `model` is the provider's name for it; `provider` is our id of the provider. */
  write(request: ModelRequest, model: string, provider: string): string
  /** `hidden` are words, such as the upstream's host, that no message may repeat. */
  createReader(hidden: readonly string[]): EventReader
  /** What the customer calls a parameter that the upstream complains about; undefined when the customer has none like it. */
  chatParam(param: string | undefined): string | undefined
}

/** Reads one answer. */
export type EventReader = {
  /** The events of the next piece of the stream, however it was cut. */
  push(text: string): ChatEvent[]
  /** The stream is over: a failure, unless its end was announced before. */
  end(): ChatEvent[]
  /** True once `finish` or `failed` came; whatever follows is ignored. */
  readonly ended: boolean
  /** True once the answer is whole, although more (its usage) may follow: a connection that breaks now breaks nothing. */
  readonly isComplete: boolean
}
