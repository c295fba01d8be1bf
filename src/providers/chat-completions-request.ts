import type { Content, Message, ToolCall } from '../inference/chat-messages.ts'
import type { ReasoningEffort } from '../inference/chat-parameters.ts'
import type { FunctionTool, ToolChoice } from '../inference/chat-tools.ts'
import type { JsonObject } from '../inference/parameter.ts'
import type { ResponseFormat } from '../inference/response-format.ts'
import { formatDefinition, functionDefinition, type ModelRequest, type Turn } from './model-request.ts'

type ChatContent = string | readonly { readonly type: 'text'; readonly text: string }[]

/** A message of the conversation. The provider's own messages are sent back exactly as they came. */
type ChatMessage =
  | { readonly role: 'system' | 'user'; readonly content: ChatContent }
  | { readonly role: 'assistant'; readonly content: ChatContent | null; readonly tool_calls?: readonly ChatCall[] }
  | { readonly role: 'tool'; readonly tool_call_id: string; readonly content: ChatContent }
  | JsonObject

type ChatCall = {
  readonly id: string
  readonly type: 'function'
  readonly function: { readonly name: string; readonly arguments: string }
}

/** The body of `POST /chat/completions`: only members that most servers support. Some servers refuse unknown members. */
export type ChatCompletionsRequest = {
  readonly model: string
  readonly messages: readonly ChatMessage[]
  readonly stream: true
  readonly stream_options: { readonly include_usage: true }
  /** Not `max_completion_tokens`: several servers ignore it, and output beyond the limit is not paid for. */
  readonly max_tokens: number
  readonly reasoning_effort: ReasoningEffort
  readonly response_format?: object
  readonly tools?: readonly object[]
  readonly tool_choice?: string | object
  readonly parallel_tool_calls?: boolean
  readonly temperature?: number
  readonly prompt_cache_key: string
}

/** The request body. `provider` is the id of the target: messages of other providers are converted. */
export function toChatCompletionsRequest(
  request: ModelRequest,
  model: string,
  provider: string,
): ChatCompletionsRequest {
  const { instructions, tools, toolChoice, parallelToolCalls, temperature } = request
  const format = responseFormat(request.responseFormat)
  return {
    model,
    messages: [
      ...(instructions === '' ? [] : [{ role: 'system' as const, content: instructions }]),
      ...request.messages.map(chatMessage),
      ...request.turns.flatMap((turn) => turnMessages(turn, provider)),
    ],
    stream: true,
    stream_options: { include_usage: true },
    max_tokens: request.maxOutputTokens,
    reasoning_effort: request.reasoningEffort,
    ...(format !== undefined && { response_format: format }),
    ...(tools.length > 0 && { tools: tools.map(chatTool), tool_choice: chatToolChoice(toolChoice) }),
    ...(tools.length > 0 && parallelToolCalls !== undefined && { parallel_tool_calls: parallelToolCalls }),
    ...(temperature !== undefined && { temperature }),
    prompt_cache_key: request.promptCacheKey,
  }
}

function chatMessage(message: Message): ChatMessage {
  switch (message.role) {
    case 'assistant':
      // A refusal is sent as an answer: few servers support a `refusal` member.
      return assistantMessage(message.content ?? message.refusal, message.toolCalls)
    case 'tool':
      return { role: 'tool', tool_call_id: message.toolCallId, content: chatContent(message.content) }
    case 'user':
      return { role: 'user', content: chatContent(message.content) }
    default:
      // Most chat templates have no developer role.
      return { role: 'system', content: chatContent(message.content) }
  }
}

function assistantMessage(content: Content | undefined, calls: readonly ToolCall[]): ChatMessage {
  const said = content === undefined ? (calls.length > 0 ? null : '') : chatContent(content)
  const sent = calls.map(
    ({ id, name, arguments: given }): ChatCall => ({ id, type: 'function', function: { name, arguments: given } }),
  )
  return { role: 'assistant', content: said, ...(sent.length > 0 && { tool_calls: sent }) }
}

/** Several servers accept only strings, so a single part becomes one. */
function chatContent(content: Content): ChatContent {
  if (typeof content === 'string') return content
  return content.length === 1 ? content[0]! : content.map((text) => ({ type: 'text', text }))
}

function turnMessages({ provider: writer, items, ...turn }: Turn, provider: string): readonly ChatMessage[] {
  const isOwn = writer === provider && items.length > 0
  const written = isOwn ? items : [assistantMessage(turn.text === '' ? undefined : turn.text, turn.calls)]
  return [
    ...written,
    ...turn.results.map(({ callId, output }) => ({ role: 'tool' as const, tool_call_id: callId, content: output })),
  ]
}

/** Sent only if true: false is the protocol's default. */
function chatTool(tool: FunctionTool): object {
  const { type, strict, ...definition } = functionDefinition(tool)
  return { type, function: { ...definition, ...(strict && { strict }) } }
}

function chatToolChoice(choice: ToolChoice): string | object {
  return typeof choice === 'string' ? choice : { type: 'function', function: { name: choice.name } }
}

function responseFormat(format: ResponseFormat): object | undefined {
  const definition = formatDefinition(format)
  if (definition?.type !== 'json_schema') return definition
  const { type, ...schema } = definition
  return { type, json_schema: schema }
}
