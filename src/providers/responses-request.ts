import type { AssistantMessage, Content, Message, ToolCall } from '../inference/chat-messages.ts'
import type { ReasoningEffort } from '../inference/chat-parameters.ts'
import type { ToolChoice } from '../inference/chat-tools.ts'
import type { JsonObject } from '../inference/parameter.ts'
import { callIdCharactersMax, derivedCallId } from '../inference/tool-pairs.ts'
import {
  type FormatDefinition,
  type FunctionDefinition,
  formatDefinition,
  functionDefinition,
  type ModelRequest,
  type Turn,
  textsOf,
} from './model-request.ts'

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

/** One input item. An output item of an earlier round is sent back exactly as it came: the upstream refuses changed ones. */
export type InputItem = MessageItem | FunctionCallItem | FunctionCallOutputItem | JsonObject

/** The body of `POST /responses`. */
export type ResponsesRequest = {
  readonly model: string
  readonly instructions?: string
  readonly input: readonly InputItem[]
  readonly stream: true
  readonly store: false
  readonly include: readonly ['reasoning.encrypted_content']
  readonly max_output_tokens: number
  readonly reasoning: { readonly effort: ReasoningEffort; readonly summary?: 'auto' }
  readonly text?: { readonly format: FormatDefinition }
  readonly tools?: readonly FunctionDefinition[]
  readonly tool_choice?: 'auto' | 'none' | 'required' | { readonly type: 'function'; readonly name: string }
  readonly parallel_tool_calls?: boolean
  readonly temperature?: number
  readonly prompt_cache_key: string
}

/** The request body. `provider` is the id of the target: items of other providers are converted. */
export function toResponsesRequest(request: ModelRequest, model: string, provider: string): ResponsesRequest {
  const { instructions, reasoningEffort: effort, temperature } = request
  const format = formatDefinition(request.responseFormat)
  return {
    model,
    ...(instructions !== '' && { instructions }),
    input: [...request.messages.flatMap(inputItems), ...request.turns.flatMap((turn) => turnItems(turn, provider))],
    stream: true,
    // By default the upstream stores answers.
    store: false,
    include: ['reasoning.encrypted_content'],
    max_output_tokens: request.maxOutputTokens,
    reasoning: effort === 'none' ? { effort } : { effort, summary: 'auto' },
    ...(format !== undefined && { text: { format } }),
    ...toolMembers(request),
    ...(temperature !== undefined && { temperature }),
    prompt_cache_key: request.promptCacheKey,
  }
}

function turnItems(turn: Turn, provider: string): readonly InputItem[] {
  const isOwn = turn.provider === provider
  const outputs = turn.results.map(
    ({ callId: id, output }): FunctionCallOutputItem => ({
      type: 'function_call_output',
      call_id: isOwn ? id : callId(id),
      output,
    }),
  )
  if (isOwn) return [...turn.items, ...turn.unlistedCalls.map(callItem), ...outputs]
  const said = turn.text === '' ? [] : assistantItems({ role: 'assistant', content: turn.text, toolCalls: [] })
  return [...said, ...turn.calls.map(callItem), ...outputs]
}

function inputItems(message: Message): readonly InputItem[] {
  switch (message.role) {
    case 'assistant':
      return assistantItems(message)
    case 'tool': {
      const output = typeof message.content === 'string' ? message.content : inputTextParts(message.content)
      return [{ type: 'function_call_output', call_id: message.toolCallId, output }]
    }
    default:
      return [{ type: 'message', role: message.role, content: inputTextParts(message.content) }]
  }
}

function inputTextParts(content: Content): readonly TextPart[] {
  const texts = typeof content === 'string' ? [content] : content
  return texts.map((text) => ({ type: 'input_text', text }))
}

/**
 * An assistant's text comes before its calls. Calls are paired by `call_id` only: an item id that the upstream has not stored
 * breaks the pairing. A message with only reasoning becomes an empty one, so that turns still alternate.
 */
function assistantItems(message: AssistantMessage): readonly InputItem[] {
  const said: (TextPart | RefusalPart)[] = textsOf(message).map((text) => ({ type: 'output_text', text }))
  if (message.refusal !== undefined) said.push({ type: 'refusal', refusal: message.refusal })
  const calls = message.toolCalls.map(callItem)
  if (said.length === 0 && calls.length > 0) return calls
  const content = said.length === 0 ? ([{ type: 'output_text', text: '' }] as const) : said
  return [{ type: 'message', role: 'assistant', content }, ...calls]
}

function callItem({ id, name, arguments: given }: ToolCall): FunctionCallItem {
  return { type: 'function_call', call_id: callId(id), name, arguments: given }
}

/** Other providers' ids can be longer than the upstream's limit. A hash keeps call and result paired in every request. */
function callId(id: string): string {
  return id.length <= callIdCharactersMax ? id : derivedCallId(id)
}

function toolMembers({
  tools,
  toolChoice: choice,
  parallelToolCalls: parallel,
}: ModelRequest): Pick<ResponsesRequest, 'tools' | 'tool_choice' | 'parallel_tool_calls'> {
  return {
    // Always sent: without it the upstream tries `strict: true`, while the chat protocol means false.
    ...(tools.length > 0 && { tools: tools.map(functionDefinition), tool_choice: toolChoice(choice) }),
    ...(parallel !== undefined && { parallel_tool_calls: parallel }),
  }
}

function toolChoice(choice: ToolChoice): NonNullable<ResponsesRequest['tool_choice']> {
  return typeof choice === 'string' ? choice : { type: 'function', name: choice.name }
}
