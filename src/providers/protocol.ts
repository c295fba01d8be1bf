import type { ChatEvent } from '../inference/chat-events.ts'
import type { ChatParameter } from '../inference/chat-parameters.ts'
import type { ModelRequest } from './model-request.ts'

/** An upstream protocol: builds requests and reads answers. */
export type Protocol = {
  /** The path after the base URL. */
  readonly path: string
  /** The request body. `model` is the provider's name for the model; `provider` is our id of the provider. */
  write(request: ModelRequest, model: string, provider: string): string
  /** Reasoning that is not shown arrives encrypted before the output: its size is known when an answer is cut off. */
  readonly sealsReasoning: boolean
  /** `hidden` lists words, such as the upstream's host, that no message may contain. `outputTokensMax` is the limit that was sent. */
  createReader(hidden: readonly string[], outputTokensMax: number): EventReader
  /** Parameters that customers know by another name. */
  readonly renamed: ReadonlyMap<string, ChatParameter>
}

// The customer's parameters that a request contains. The model is not among them: we choose its name.
const sentParams: ReadonlySet<string> = new Set<ChatParameter>([
  'messages',
  'response_format',
  'reasoning_effort',
  'max_tokens',
  'tools',
  'tool_choice',
  'parallel_tool_calls',
  'temperature',
  'prompt_cache_key',
])

/**
 * The customer's name for a parameter that the upstream's error names; undefined when the customer has no such parameter. Indices
 * inside a parameter may differ, so they are left out.
 */
export function chatParam(param: string | undefined, { renamed }: Pick<Protocol, 'renamed'>): string | undefined {
  const name = param?.split(/[.[]/, 1)[0] ?? ''
  const ours = renamed.get(name) ?? name
  return sentParams.has(ours) ? ours : undefined
}

/** Reads one answer. */
export type EventReader = {
  /** The events of the next chunk of the stream. Chunks may be cut anywhere. */
  push(text: string): ChatEvent[]
  /** The stream has ended: a failure unless the answer was complete. */
  end(): ChatEvent[]
  /** True after `finish` or `failed`. Later input is ignored. */
  readonly ended: boolean
  /** True once the answer is complete, although its usage may follow: a broken connection is then no failure. */
  readonly isComplete: boolean
}
