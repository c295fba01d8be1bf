import { hash } from 'node:crypto'
import type { AssistantMessage, Message, ToolCall, ToolMessage } from './chat-messages.ts'
import { InvalidValueError, quoted, wrongValue } from './parameter.ts'

/** OpenAI's limit. Some chat templates show ids to the model, so a longer one would also be input that is not priced. */
export const callIdCharactersMax = 64

/** The calls of a conversation up to a message. */
type Calls = {
  /** Calls without a result, by the client's id. One per id, or several for the empty id. */
  readonly open: Map<string, OpenCall[]>
  /** How many calls used an id. */
  readonly uses: Map<string, number>
}

type OpenCall = { readonly id: string; readonly place: string }

/**
 * Pairs every call with its result by a unique, short id, as the upstream requires. Some clients restart their call ids in each turn,
 * send no ids at all or very long ones. They are accepted as long as the pairing is unambiguous: such ids are replaced in call and
 * result. The replacements are deterministic, so sending the conversation again gives the same ids.
 * @throws {InvalidValueError} for a call without a result and a result without a call.
 */
export function pairToolCalls(messages: readonly Message[]): readonly Message[] {
  const calls: Calls = { open: new Map(), uses: new Map() }
  const paired = messages.map((message, index) => {
    if (message.role === 'assistant') return openCalls(message, `messages[${index}].tool_calls`, calls)
    return message.role === 'tool' ? closeCall(message, `messages[${index}].tool_call_id`, calls) : message
  })
  for (const [id, [call]] of calls.open) throw unanswered(id, call!.place)
  return paired
}

function openCalls(message: AssistantMessage, place: string, { open, uses }: Calls): AssistantMessage {
  // Results without an id match calls by order. With open calls of two messages the match would be ambiguous.
  if (message.toolCalls.some(({ id }) => id === '') && open.has('')) throw unanswered('', open.get('')![0]!.place)
  const toolCalls = message.toolCalls.map((call, index): ToolCall => {
    const idPlace = `${place}[${index}].id`
    const waiting = open.get(call.id) ?? []
    if (call.id !== '' && waiting.length > 0) {
      throw wrongValue(idPlace, call.id, 'an id that no other open call has: results are matched by id')
    }
    const id = uniqueId(call.id, uses)
    open.set(call.id, [...waiting, { id, place: idPlace }])
    return { ...call, id }
  })
  return { ...message, toolCalls }
}

function closeCall(message: ToolMessage, place: string, { open, uses }: Calls): ToolMessage {
  const { toolCallId } = message
  const [call, ...waiting] = open.get(toolCallId) ?? []
  if (call === undefined) {
    const expected = uses.has(toolCallId)
      ? 'the id of a call without a result; this call already has one'
      : 'the id of a tool call in an earlier assistant message'
    throw wrongValue(place, toolCallId, expected)
  }
  if (waiting.length > 0) open.set(toolCallId, waiting)
  else open.delete(toolCallId)
  return { ...message, toolCallId: call.id }
}

/** Depends only on earlier messages: a longer conversation starts with the same bytes, which prompt caches need. */
function uniqueId(id: string, uses: Map<string, number>): string {
  const count = (uses.get(id) ?? 0) + 1
  uses.set(id, count)
  if (id !== '' && id.length <= callIdCharactersMax && count === 1) return id
  const derived = derivedCallId(`${count} ${id}`)
  uses.set(derived, 1)
  return derived
}

/** An id that the upstream accepts; deterministic for a text. */
export function derivedCallId(text: string): string {
  return `call_${hash('sha256', text).slice(0, 48)}`
}

function unanswered(id: string, place: string): InvalidValueError {
  const advice =
    id === ''
      ? 'Give every call a unique id, and its tool message the same tool_call_id.'
      : 'Add one with that tool_call_id.'
  return new InvalidValueError(`\`${place}\` is ${quoted(id)}, and no tool message answers this call. ${advice}`, place)
}
