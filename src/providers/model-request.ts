import type { Content, InstructionMessage, Message, ToolCall } from '../inference/chat-messages.ts'
import type { ReasoningEffort } from '../inference/chat-parameters.ts'
import type { ChatRequest } from '../inference/chat-request.ts'
import type { FunctionTool, ToolChoice } from '../inference/chat-tools.ts'
import { isObject, type JsonObject } from '../inference/parameter.ts'
import type { ResponseFormat } from '../inference/response-format.ts'

/** One request to a model, independent of the provider's protocol. */
export type ModelRequest = {
  /** The leading system and developer messages; empty when there are none. */
  readonly instructions: string
  readonly messages: readonly Message[]
  /** Earlier rounds of the same request, after the conversation. */
  readonly turns: readonly Turn[]
  readonly tools: readonly FunctionTool[]
  readonly toolChoice: ToolChoice
  readonly parallelToolCalls: boolean | undefined
  readonly responseFormat: ResponseFormat
  readonly reasoningEffort: ReasoningEffort
  readonly temperature: number | undefined
  /** Never below `maxOutputTokensMin`. */
  readonly maxOutputTokens: number
  readonly promptCacheKey: string
}

/** A finished round: what the model wrote, and the results of the tools it called. */
export type Turn = {
  /** The provider that wrote it. Only that one can read `items`. */
  readonly provider: string
  /** The output exactly as received, in order: reshaped items are refused. */
  readonly items: readonly JsonObject[]
  /** Calls that are not part of an item. */
  readonly unlistedCalls: readonly ToolCall[]
  /** The same output in neutral form, for other providers. */
  readonly text: string
  readonly calls: readonly ToolCall[]
  readonly results: readonly ToolOutput[]
}

export type ToolOutput = { readonly callId: string; readonly output: string }

export type RequestOptions = {
  /** One value for all rounds of a request, so that they share the provider's prompt cache; different for every account. */
  readonly promptCacheKey: string
  /** The output limit of this round. Default: the client's `max_tokens`. */
  readonly maxOutputTokens?: number | undefined
  readonly turns?: readonly Turn[] | undefined
  /** Our own tools, after the client's. */
  readonly extraTools?: readonly FunctionTool[] | undefined
  /** Overrides the client's choice, for a round that must not call tools, or only one at a time. */
  readonly toolChoice?: ToolChoice | undefined
  readonly parallelToolCalls?: boolean | undefined
}

/** The Responses API refuses a smaller `max_output_tokens`; we then cut the answer at the client's limit. */
export const maxOutputTokensMin = 16

/** Deterministic: the same chat gives the same request, which prompt caches need. */
export function toModelRequest(chat: ChatRequest, options: RequestOptions): ModelRequest {
  return {
    ...splitInstructions(chat),
    turns: options.turns ?? [],
    tools: options.extraTools === undefined ? chat.tools : [...chat.tools, ...options.extraTools],
    toolChoice: options.toolChoice ?? chat.toolChoice,
    parallelToolCalls: options.parallelToolCalls ?? chat.parallelToolCalls,
    responseFormat: chat.responseFormat,
    reasoningEffort: chat.reasoningEffort,
    temperature: chat.temperature,
    maxOutputTokens: Math.max(maxOutputTokensMin, options.maxOutputTokens ?? chat.maxTokens),
    promptCacheKey: options.promptCacheKey,
  }
}

/**
 * Leading system and developer messages become the instructions. They stay messages where a provider would otherwise refuse the
 * request: when there is no other message, and when JSON is requested and only they mention it.
 */
function splitInstructions(chat: ChatRequest): Pick<ModelRequest, 'instructions' | 'messages'> {
  const firstOther = chat.messages.findIndex((message) => !isInstruction(message))
  const leading = chat.messages.slice(0, firstOther === -1 ? undefined : firstOther).filter(isInstruction)
  const rest = chat.messages.slice(leading.length)
  const wantsJson = chat.responseFormat.type === 'json_object'
  if (rest.length === 0 || (wantsJson && leading.some(saysJson) && !rest.some(saysJson))) {
    return {
      instructions: '',
      messages: [...leading.map(({ content }) => ({ role: 'developer' as const, content })), ...rest],
    }
  }
  return { instructions: leading.flatMap(textsOf).filter(Boolean).join('\n\n'), messages: rest }
}

function isInstruction(message: Message): message is InstructionMessage {
  return message.role === 'system' || message.role === 'developer'
}

function saysJson(message: Message): boolean {
  return textsOf(message).some((text) => /json/i.test(text))
}

/** The texts of a message, one for each part. */
export function textsOf({ content }: { readonly content?: Content | undefined }): readonly string[] {
  if (content === undefined) return []
  return typeof content === 'string' ? [content] : content
}

export type FunctionDefinition = {
  readonly type: 'function'
  readonly name: string
  readonly description?: string
  readonly parameters: JsonObject
  readonly strict: boolean
}

/** With all defaults written out. */
export function functionDefinition({ name, description, parameters, strict }: FunctionTool): FunctionDefinition {
  return {
    type: 'function',
    name,
    ...(description !== undefined && { description }),
    parameters: parameters ?? { type: 'object', properties: {} },
    strict,
  }
}

export type FormatDefinition =
  | { readonly type: 'json_object' }
  | {
      readonly type: 'json_schema'
      readonly name: string
      readonly description?: string
      readonly schema: JsonObject
      readonly strict: boolean
    }

/** Undefined for plain text. */
export function formatDefinition(format: ResponseFormat): FormatDefinition | undefined {
  if (format.type === 'text') return undefined
  if (format.type === 'json_object') return format
  const { type, name, description, schema, strict } = format
  // Providers require a schema where the chat protocol does not: allow any object.
  return { type, name, ...(description !== undefined && { description }), schema: schema ?? { type: 'object' }, strict }
}

// Members that frame an item and are not read by the model. The item count bounds the framing.
const framing = new Set(['type', 'role', 'id', 'call_id', 'status', 'phase'])

// Encrypted reasoning, and signatures of it. They have fewer tokens than bytes, but only the provider knows how many. What can be read of
// `reasoning_details` is also in `reasoning`.
const framingAndSealed = new Set([...framing, 'encrypted_content', 'extra_content', 'reasoning_details'])

/** Everything that a provider counts as input. Schemas are the JSON that is sent. */
export function inputOf(request: ModelRequest): {
  readonly texts: readonly string[]
  readonly itemCount: number
  readonly schemaEntryCount: number
} {
  return {
    texts: inputTexts(request),
    itemCount: inputItemCount(request),
    schemaEntryCount: schemaEntryCount(request),
  }
}

/** Every text that a provider counts as input. */
export function inputTexts(request: ModelRequest): string[] {
  return textsOfRequest(request, framing)
}

/** The texts that we can count ourselves: encrypted reasoning is left out, and not billed by our count. */
export function readableTexts(request: ModelRequest): string[] {
  return textsOfRequest(request, framingAndSealed)
}

function textsOfRequest(request: ModelRequest, left: ReadonlySet<string>): string[] {
  const texts = request.instructions === '' ? [] : [request.instructions]
  for (const message of request.messages) collectMessage(message, texts)
  for (const { items, unlistedCalls, results } of request.turns) {
    for (const item of items) collectTexts(item, texts, left)
    for (const call of unlistedCalls) texts.push(call.name, call.arguments)
    for (const { output } of results) texts.push(output)
  }
  for (const tool of request.tools) texts.push(JSON.stringify(functionDefinition(tool)))
  const format = formatDefinition(request.responseFormat)
  if (format !== undefined) texts.push(JSON.stringify(format))
  return texts
}

function collectMessage(message: Message, texts: string[]): void {
  texts.push(...textsOf(message))
  if (message.role !== 'assistant') return
  if (message.refusal !== undefined) texts.push(message.refusal)
  for (const call of message.toolCalls) texts.push(call.name, call.arguments)
}

/** Items of earlier rounds have provider-specific shapes, so every string in them counts, except under the excluded names. */
function collectTexts(value: unknown, texts: string[], left: ReadonlySet<string>): void {
  if (typeof value === 'string') texts.push(value)
  else if (Array.isArray(value)) for (const entry of value) collectTexts(entry, texts, left)
  else if (typeof value === 'object' && value !== null) {
    for (const [key, member] of Object.entries(value)) if (!left.has(key)) collectTexts(member, texts, left)
  }
}

/** The number of things that a provider wraps in framing tokens: instructions, items, parts of an item, and tools. */
function inputItemCount({ instructions, messages, turns, tools }: ModelRequest): number {
  let count = (instructions === '' ? 0 : 1) + tools.length
  for (const message of messages) count += messageItemCount(message)
  for (const { items, unlistedCalls, results } of turns) {
    for (const item of items) count += itemPartCount(item)
    count += unlistedCalls.length + results.length
  }
  return count
}

function messageItemCount(message: Message): number {
  const parts = textsOf(message).length
  if (message.role !== 'assistant') return Math.max(1, parts)
  const refusals = message.refusal === undefined ? 0 : 1
  return Math.max(1, parts + refusals + message.toolCalls.length)
}

function itemPartCount(item: JsonObject): number {
  const parts = item.content ?? item.output
  const calls = Array.isArray(item.tool_calls) ? item.tool_calls.length : 0
  return calls + (Array.isArray(parts) ? Math.max(1, parts.length) : 1)
}

/** In the schemas: each enum value, and each property after the first of its object, which the item count covers. */
function schemaEntryCount({ tools, responseFormat }: ModelRequest): number {
  const format = responseFormat.type === 'json_schema' ? entriesIn(responseFormat.schema) : 0
  return tools.reduce((count, { parameters }) => count + entriesIn(parameters), format)
}

/** A property that is itself named `enum` or `properties` may be counted twice, which is safe. */
function entriesIn(value: unknown): number {
  if (Array.isArray(value)) return value.reduce<number>((count, entry) => count + entriesIn(entry), 0)
  if (!isObject(value)) return 0
  const { enum: values, properties } = value
  const own = Array.isArray(values) ? values.length : 0
  const named = isObject(properties) ? Math.max(0, Object.keys(properties).length - 1) : 0
  return own + named + entriesIn(Object.values(value))
}
