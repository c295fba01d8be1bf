import type { AssistantMessage, Content, InstructionMessage, Message } from './chat-messages.ts'
import type { ChatRequest, ReasoningEffort } from './chat-request.ts'
import type { FunctionTool, ToolChoice } from './chat-tools.ts'
import { isObject, type JsonObject } from './parameter.ts'
import type { ResponseFormat } from './response-format.ts'
import { derivedCallId } from './tool-pairs.ts'

type TextPart = { readonly type: 'input_text' | 'output_text'; readonly text: string }
type RefusalPart = { readonly type: 'refusal'; readonly refusal: string }

export type MessageItem = {
  readonly type: 'message'
  readonly role: 'system' | 'developer' | 'user' | 'assistant'
  readonly content: readonly (TextPart | RefusalPart)[]
}
export type FunctionCallItem = {
  readonly type: 'function_call'
  readonly call_id: string
  readonly name: string
  readonly arguments: string
}
export type FunctionCallOutputItem = {
  readonly type: 'function_call_output'
  readonly call_id: string
  readonly output: string | readonly TextPart[]
}

/** One entry of the input. An output item of an earlier round goes back exactly as it came: reshaped ones are refused. */
export type InputItem = MessageItem | FunctionCallItem | FunctionCallOutputItem | JsonObject

type ToolDefinition = {
  readonly type: 'function'
  readonly name: string
  readonly description?: string
  readonly parameters: JsonObject
  readonly strict: boolean
}

type TextFormat =
  | { readonly type: 'json_object' }
  | {
      readonly type: 'json_schema'
      readonly name: string
      readonly description?: string
      readonly schema: JsonObject
      readonly strict: boolean
    }

/** The body of `POST /responses`, member for member. */
export type ResponsesRequest = {
  readonly model: string
  readonly instructions?: string
  readonly input: readonly InputItem[]
  readonly stream: true
  readonly store: false
  readonly include: readonly ['reasoning.encrypted_content']
  readonly max_output_tokens: number
  readonly reasoning: { readonly effort: ReasoningEffort; readonly summary?: 'auto' }
  readonly text?: { readonly format: TextFormat }
  readonly tools?: readonly ToolDefinition[]
  readonly tool_choice?: 'auto' | 'none' | 'required' | { readonly type: 'function'; readonly name: string }
  readonly parallel_tool_calls?: boolean
  readonly temperature?: number
  readonly prompt_cache_key: string
}

export type MappingOptions = {
  readonly upstreamModel: string
  /** One value for all rounds of a request, so that they share the upstream's prompt cache; different for every account. */
  readonly promptCacheKey: string
  /** What this round may still write; the asked count when left out. */
  readonly maxOutputTokens?: number | undefined
  /** Items of earlier rounds, behind the conversation. */
  readonly extraInput?: readonly InputItem[] | undefined
  /** Our own tools, behind the client's. */
  readonly extraTools?: readonly FunctionTool[] | undefined
  /** Overrides of what the client asked, for a round that must not call tools, or only one at a time. */
  readonly toolChoice?: ToolChoice | undefined
  readonly parallelToolCalls?: boolean | undefined
}

/** The upstream refuses a smaller `max_output_tokens`; the answer is then cut here, at the asked count. */
export const maxOutputTokensMin = 16
const callIdCharactersMax = 64

/** The upstream request of a chat request. Pure: the same chat gives the same bytes, which is what prompt caches need. */
export function toResponsesRequest(chat: ChatRequest, options: MappingOptions): ResponsesRequest {
  const { instructions, messages } = splitInstructions(chat)
  const format = textFormat(chat.responseFormat)
  return {
    model: options.upstreamModel,
    ...(instructions !== '' && { instructions }),
    input: [...messages.flatMap(inputItems), ...(options.extraInput ?? [])],
    stream: true,
    // The upstream keeps answers unless told not to; nobody asked for that.
    store: false,
    include: ['reasoning.encrypted_content'],
    max_output_tokens: Math.max(maxOutputTokensMin, options.maxOutputTokens ?? chat.maxTokens),
    reasoning: chat.reasoningEffort === 'none' ? { effort: 'none' } : { effort: chat.reasoningEffort, summary: 'auto' },
    ...(format !== undefined && { text: { format } }),
    ...toolMembers(chat, options),
    ...(chat.temperature !== undefined && { temperature: chat.temperature }),
    prompt_cache_key: options.promptCacheKey,
  }
}

/**
 * Leading system and developer messages are the instructions. They stay in the input where the upstream would otherwise
 * refuse the request: when there is no other message, and when JSON is asked for and only they say so.
 */
function splitInstructions(chat: ChatRequest): { instructions: string; messages: readonly Message[] } {
  const firstOther = chat.messages.findIndex((message) => !isInstruction(message))
  const leading = chat.messages.slice(0, firstOther === -1 ? undefined : firstOther).filter(isInstruction)
  const rest = chat.messages.slice(leading.length)
  if (rest.length === 0 || saysJsonOnlyIn(leading, rest, chat.responseFormat)) {
    return { instructions: '', messages: [...leading.map(asDeveloper), ...rest] }
  }
  return { instructions: leading.flatMap(textsOf).filter(Boolean).join('\n\n'), messages: rest }
}

function isInstruction(message: Message): message is InstructionMessage {
  return message.role === 'system' || message.role === 'developer'
}

function asDeveloper(message: InstructionMessage): InstructionMessage {
  return { role: 'developer', content: message.content }
}

function saysJsonOnlyIn(leading: readonly Message[], rest: readonly Message[], format: ResponseFormat): boolean {
  return format.type === 'json_object' && leading.some(saysJson) && !rest.some(saysJson)
}

function saysJson(message: Message): boolean {
  return textsOf(message).some((text) => /json/i.test(text))
}

function textsOf({ content }: Message): readonly string[] {
  if (content === undefined) return []
  return typeof content === 'string' ? [content] : content
}

function inputItems(message: Message): readonly InputItem[] {
  switch (message.role) {
    case 'assistant':
      return assistantItems(message)
    case 'tool':
      return [{ type: 'function_call_output', call_id: callId(message.toolCallId), output: outputOf(message.content) }]
    default:
      return [{ type: 'message', role: message.role, content: inputTextParts(message.content) }]
  }
}

function inputTextParts(content: Content): readonly TextPart[] {
  const texts = typeof content === 'string' ? [content] : content
  return texts.map((text) => ({ type: 'input_text', text }))
}

function outputOf(content: Content): string | readonly TextPart[] {
  return typeof content === 'string' ? content : inputTextParts(content)
}

/**
 * What an assistant said comes before what it called. Calls are paired by `call_id` alone: an item id that the upstream
 * has not stored breaks the pairing. A message of reasoning only leaves an empty one, so that turns still alternate.
 */
function assistantItems(message: AssistantMessage): readonly InputItem[] {
  const said: (TextPart | RefusalPart)[] = textsOf(message).map((text) => ({ type: 'output_text', text }))
  if (message.refusal !== undefined) said.push({ type: 'refusal', refusal: message.refusal })
  const calls = message.toolCalls.map(
    (call): FunctionCallItem => ({
      type: 'function_call',
      call_id: callId(call.id),
      name: call.name,
      arguments: call.arguments,
    }),
  )
  if (said.length === 0 && calls.length > 0) return calls
  const content = said.length === 0 ? ([{ type: 'output_text', text: '' }] as const) : said
  return [{ type: 'message', role: 'assistant', content }, ...calls]
}

/** Other providers' ids can be longer than the upstream takes; a hash keeps call and result paired in every request. */
function callId(id: string): string {
  return id.length <= callIdCharactersMax ? id : derivedCallId(id)
}

function textFormat(format: ResponseFormat): TextFormat | undefined {
  if (format.type === 'text') return undefined
  if (format.type === 'json_object') return format
  const { type, name, description, schema, strict } = format
  // The upstream insists on a schema where the chat protocol does not: any object will do then.
  return { type, name, ...(description !== undefined && { description }), schema: schema ?? { type: 'object' }, strict }
}

function toolMembers(
  chat: ChatRequest,
  options: MappingOptions,
): Pick<ResponsesRequest, 'tools' | 'tool_choice' | 'parallel_tool_calls'> {
  const tools = [...chat.tools, ...(options.extraTools ?? [])]
  const parallel = options.parallelToolCalls ?? chat.parallelToolCalls
  return {
    ...(tools.length > 0 && {
      tools: tools.map(toolDefinition),
      tool_choice: toolChoice(options.toolChoice ?? chat.toolChoice),
    }),
    ...(parallel !== undefined && { parallel_tool_calls: parallel }),
  }
}

/** `strict` is always said: left out, the upstream tries it as true, where the chat protocol means false. */
function toolDefinition({ name, description, parameters, strict }: FunctionTool): ToolDefinition {
  return {
    type: 'function',
    name,
    ...(description !== undefined && { description }),
    parameters: parameters ?? { type: 'object', properties: {} },
    strict,
  }
}

function toolChoice(choice: ToolChoice): NonNullable<ResponsesRequest['tool_choice']> {
  return typeof choice === 'string' ? choice : { type: 'function', name: choice.name }
}

// Members that frame an item rather than being read by the model; framing is bounded by the item count.
const framing = new Set(['type', 'role', 'id', 'call_id', 'status', 'phase'])

// Reasoning that only the upstream can read. What it counts there is less than its bytes, and nobody here can say how much.
const sealed = 'encrypted_content'

/** Every text that the upstream counts as input. Schemas are given as the JSON that is sent. */
export function inputTexts(request: ResponsesRequest): string[] {
  return textsOfRequest(request, framing)
}

/** Of these texts those that can be read and so be counted: where our own count is billed, the rest is not. */
export function readableTexts(request: ResponsesRequest): string[] {
  return textsOfRequest(request, new Set([...framing, sealed]))
}

function textsOfRequest(request: ResponsesRequest, left: ReadonlySet<string>): string[] {
  const texts = request.instructions === undefined ? [] : [request.instructions]
  for (const item of request.input) collectTexts(item, texts, left)
  for (const tool of request.tools ?? []) texts.push(JSON.stringify(tool))
  if (request.text !== undefined) texts.push(JSON.stringify(request.text.format))
  return texts
}

/** Items of earlier rounds have shapes of their own, so every string in them counts, except under names that are left out. */
function collectTexts(value: unknown, texts: string[], left: ReadonlySet<string>): void {
  if (typeof value === 'string') texts.push(value)
  else if (Array.isArray(value)) for (const entry of value) collectTexts(entry, texts, left)
  else if (typeof value === 'object' && value !== null) {
    for (const [key, member] of Object.entries(value)) if (!left.has(key)) collectTexts(member, texts, left)
  }
}

/** How many things the upstream wraps in tokens of its own: instructions, items, the parts of an item, and tools. */
export function inputItemCount(request: ResponsesRequest): number {
  const instructions = request.instructions === undefined ? 0 : 1
  const items = request.input.reduce((count, item) => count + Math.max(1, partCount(item)), 0)
  return instructions + items + (request.tools?.length ?? 0)
}

/** Everything that the upstream counts as input. */
export function inputOf(request: ResponsesRequest): {
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

/** Values and properties in the schemas: each enum value, and each property after the first of its object, which the item itself covers. */
function schemaEntryCount(request: ResponsesRequest): number {
  const format = request.text?.format
  const schemas = [
    ...(request.tools ?? []).map(({ parameters }) => parameters),
    format && 'schema' in format && format.schema,
  ]
  return schemas.reduce<number>((count, schema) => count + entriesIn(schema), 0)
}

/** A property that is itself called `enum` or `properties` may be counted once too often, which is on the safe side. */
function entriesIn(value: unknown): number {
  if (Array.isArray(value)) return value.reduce<number>((count, entry) => count + entriesIn(entry), 0)
  if (!isObject(value)) return 0
  const { enum: values, properties } = value
  const own = Array.isArray(values) ? values.length : 0
  const named = isObject(properties) ? Math.max(0, Object.keys(properties).length - 1) : 0
  return own + named + entriesIn(Object.values(value))
}

function partCount(item: InputItem): number {
  const parts = 'content' in item ? item.content : 'output' in item ? item.output : undefined
  return Array.isArray(parts) ? parts.length : 1
}
