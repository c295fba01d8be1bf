import { hash } from 'node:crypto'
import { contentPartsMax, messageRoles, messagesMax, toolCallIdCharactersMax, toolCallsMax } from './chat-parameters.ts'
import {
  InvalidValueError,
  isAbsent,
  isName,
  type JsonObject,
  MissingParameterError,
  oneOf,
  optional,
  readArray,
  readObject,
  readString,
  required,
  UnsupportedContentError,
  UnsupportedParameterError,
  wrongValue,
} from './parameter.ts'
import { pairToolCalls } from './tool-pairs.ts'

/** A text, or the texts of several parts. Parts reach the model separately, so they are never joined. */
export type Content = string | readonly string[]

export type ToolCall = { readonly id: string; readonly name: string; readonly arguments: string }

export type InstructionMessage = { readonly role: 'system' | 'developer'; readonly content: Content }
export type UserMessage = { readonly role: 'user'; readonly content: Content }
export type ToolMessage = { readonly role: 'tool'; readonly toolCallId: string; readonly content: Content }

/** A past answer. It may contain text, a refusal and calls in any combination, or only reasoning, which is not replayed. */
export type AssistantMessage = {
  readonly role: 'assistant'
  readonly content?: Content | undefined
  readonly refusal?: string | undefined
  readonly toolCalls: readonly ToolCall[]
}

export type Message = InstructionMessage | UserMessage | AssistantMessage | ToolMessage

const calledNameCharactersKept = 48

const readRole = oneOf(messageRoles)

/** The conversation. Every call has its result and every result its call; otherwise the upstream would refuse it. */
export function parseMessages(value: unknown): readonly Message[] {
  if (isAbsent(value)) throw new MissingParameterError('messages', 'Send at least one message.')
  const entries = readArray(value, 'messages', messagesMax)
  if (entries.length === 0) {
    throw new InvalidValueError('`messages` is empty; it must contain at least one message.', 'messages')
  }
  return pairToolCalls(entries.map((entry, index) => parseMessage(entry, `messages[${index}]`)))
}

function parseMessage(value: unknown, place: string): Message {
  const fields = readObject(value, place)
  const role = required(fields.role, `${place}.role`, readRole)
  if (role === 'assistant') return parseAssistantMessage(fields, place)
  if (!isAbsent(fields.tool_calls)) {
    throw new InvalidValueError(
      `\`${place}.tool_calls\` is on a ${role} message; only an assistant message calls tools. Remove it or set the role to assistant.`,
      `${place}.tool_calls`,
    )
  }
  if (role !== 'tool') return { role, content: required(fields.content, `${place}.content`, readContent) }
  const toolCallId = required(fields.tool_call_id, `${place}.tool_call_id`, readToolCallId)
  // Clients send null or omit the content for tools that return nothing.
  return { role, toolCallId, content: optional(fields.content, `${place}.content`, readContent) ?? '' }
}

function parseAssistantMessage(fields: JsonObject, place: string): AssistantMessage {
  if (!isAbsent(fields.function_call)) {
    throw new UnsupportedParameterError(
      `\`${place}.function_call\` is not supported. Send the call in \`tool_calls\` and its result in a tool message.`,
      `${place}.function_call`,
    )
  }
  const { content, refusal } = readAssistantContent(fields.content, `${place}.content`)
  const message: AssistantMessage = {
    role: 'assistant',
    content,
    refusal: refusal ?? optional(fields.refusal, `${place}.refusal`, readString),
    toolCalls: optional(fields.tool_calls, `${place}.tool_calls`, readToolCalls) ?? [],
  }
  const isSilent = message.content === undefined && message.refusal === undefined && message.toolCalls.length === 0
  if (isSilent && isAbsent(fields.reasoning_content) && isAbsent(fields.reasoning)) {
    throw new MissingParameterError(
      `${place}.content`,
      'Send a string, text parts, or null together with `tool_calls`.',
    )
  }
  return message
}

function readContent(value: unknown, place: string): Content {
  if (typeof value === 'string') return value.toWellFormed()
  return readParts(value, place).map((part, index) => readTextPart(part, `${place}[${index}]`))
}

function readTextPart(value: unknown, place: string): string {
  const part = readObject(value, place)
  const type = required(part.type, `${place}.type`, readString)
  if (type !== 'text') throw new UnsupportedContentError(type, `${place}.type`)
  return required(part.text, `${place}.text`, readString)
}

function readParts(value: unknown, place: string): readonly unknown[] {
  if (!Array.isArray(value)) throw wrongValue(place, value, 'a string or an array of text parts')
  const parts = readArray(value, place, contentPartsMax)
  if (parts.length === 0) throw wrongValue(place, value, 'a string or a non-empty array of text parts')
  return parts
}

/** Besides text, an assistant's content may contain refusal parts. */
function readAssistantContent(value: unknown, place: string): Pick<AssistantMessage, 'content' | 'refusal'> {
  if (isAbsent(value)) return {}
  if (typeof value === 'string') return { content: value.toWellFormed() }
  const texts: string[] = []
  const refusals: string[] = []
  for (const [index, entry] of readParts(value, place).entries()) {
    const partPlace = `${place}[${index}]`
    const part = readObject(entry, partPlace)
    if (part.type === 'refusal') refusals.push(required(part.refusal, `${partPlace}.refusal`, readString))
    else texts.push(readTextPart(part, partPlace))
  }
  return {
    content: texts.length === 0 ? undefined : texts,
    refusal: refusals.length === 0 ? undefined : refusals.join('\n'),
  }
}

function readToolCalls(value: unknown, place: string): readonly ToolCall[] {
  return readArray(value, place, toolCallsMax).map((entry, index) => readToolCall(entry, `${place}[${index}]`))
}

function readToolCall(value: unknown, place: string): ToolCall {
  const call = readObject(value, place)
  if (!isAbsent(call.type) && call.type !== 'function') {
    throw new UnsupportedParameterError(
      `\`${place}.type\` must be "function": other kinds of tools are not supported.`,
      `${place}.type`,
    )
  }
  const id = required(call.id, `${place}.id`, readToolCallId)
  const called = required(call.function, `${place}.function`, readObject)
  return {
    id,
    name: required(called.name, `${place}.function.name`, readCalledName),
    arguments: required(called.arguments, `${place}.function.arguments`, readString),
  }
}

/**
 * The name of a tool that was called in the past. Histories from other providers contain names such as `mcp.server:tool`, which the
 * upstream refuses, so these are rewritten. The hash keeps rewritten names distinct from each other and from every offered tool.
 */
function readCalledName(value: unknown, place: string): string {
  const name = readString(value, place)
  if (name === '') throw wrongValue(place, name, 'the name of the tool that was called')
  if (isName(name)) return name
  return `${name.slice(0, calledNameCharactersKept).replace(/[^A-Za-z0-9_-]/g, '_')}_${hash('sha256', name).slice(0, 8)}`
}

function readToolCallId(value: unknown, place: string): string {
  const id = readString(value, place)
  if (id.length > toolCallIdCharactersMax) {
    throw wrongValue(place, id, `a string of at most ${toolCallIdCharactersMax} characters`)
  }
  return id
}
