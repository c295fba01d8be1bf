import type { ChatEvent, FinishReason } from '../inference/chat-events.ts'
import { isObject, type JsonObject } from '../inference/parameter.ts'
import { derivedCallId } from '../inference/tool-pairs.ts'
import { createEventParser, parseData, readCitation, type StreamedAnswer, takeEvents } from './event-stream.ts'
import { createOrderedCalls, type OrderedCalls } from './ordered-calls.ts'
import type { EventReader } from './protocol.ts'
import { readFault } from './upstream-fault.ts'

/**
 * Reads the server-sent events of `POST /chat/completions`. Lenient: servers differ in the name of the reasoning member, in the position
 * of usage, and in how they number calls. Ignores unknown members.
 */
export function createChatCompletionsReader(hidden: readonly string[] = []): EventReader {
  const answer = createAnswer(hidden)
  const parser = createEventParser(
    ({ data }) => readChunk(answer, data),
    (code, message) => fail(answer, code, message),
  )
  const push = (text: string): ChatEvent[] => {
    if (!answer.ended) parser.feed(text)
    return takeEvents(answer)
  }
  return {
    push,
    end() {
      // Accept a last event without its empty line.
      const events = push('\n\n')
      if (!answer.ended && answer.reason !== undefined) finish(answer)
      if (!answer.ended) fail(answer, 'upstream_ended', 'The answer ended early.')
      return [...events, ...takeEvents(answer)]
    },
    get ended() {
      return answer.ended
    },
    get isComplete() {
      return answer.reason !== undefined
    },
  }
}

/** State while an answer is being read. */
type Answer = StreamedAnswer & {
  readonly hidden: readonly string[]
  /** Set by the finish chunk. Usage may follow it. */
  reason: FinishReason | undefined
  usage: unknown
  text: string
  /** Under the server's own member name, or `thinking` for parts: some servers refuse a further round without it. */
  reasoning: { readonly name: string; text: string } | undefined
  /** OpenRouter's. Some of its models refuse a further round without them. */
  readonly reasoningDetails: JsonObject[]
  readonly orderedCalls: OrderedCalls
  /** By their index in the list. */
  readonly calls: Map<number, Call>
  readonly allCalls: Call[]
}

type Call = {
  readonly place: string
  readonly id: string
  readonly name: string
  arguments: string
  /** Google's signature of the thoughts before the call. Its models refuse a further round without it. */
  extraContent: JsonObject | undefined
}

function createAnswer(hidden: readonly string[]): Answer {
  return {
    hidden,
    events: [],
    accepted: false,
    ended: false,
    reason: undefined,
    usage: undefined,
    text: '',
    reasoning: undefined,
    reasoningDetails: [],
    orderedCalls: createOrderedCalls(),
    calls: new Map(),
    allCalls: [],
  }
}

function readChunk(answer: Answer, data: string): void {
  if (answer.ended) return
  if (data === '[DONE]') {
    if (answer.reason !== undefined) finish(answer)
    return
  }
  const chunk = parseData(data)
  if (chunk === undefined) return
  if (isObject(chunk.error) || typeof chunk.error === 'string') {
    const { code, message } = readFault(chunk, answer.hidden)
    fail(answer, code, message === '' ? 'The model failed to answer.' : message)
    return
  }
  if (!answer.accepted) {
    answer.accepted = true
    answer.events.push({ type: 'accepted' })
  }
  if (isObject(chunk.usage)) {
    answer.usage = reportedUsage(chunk.usage)
    if (answer.reason === undefined) answer.events.push({ type: 'usage-so-far', usage: answer.usage })
  }
  const choices: readonly unknown[] = Array.isArray(chunk.choices) ? chunk.choices : []
  // We ask for one choice. The text of another one must not be mixed into it.
  const choice = choices.filter(isObject).find(({ index }) => typeof index !== 'number' || index === 0)
  if (choice !== undefined) readChoice(answer, chunk, choice)
  else if (choices.length === 0 && answer.reason !== undefined && answer.usage !== undefined) finish(answer)
}

function readChoice(answer: Answer, chunk: JsonObject, choice: JsonObject): void {
  const delta = isObject(choice.delta) ? choice.delta : {}
  // A report from before this output does not include it: some servers report usage with their first chunk only.
  if (!isObject(chunk.usage) && hasOutput(delta)) answer.usage = undefined
  addReasoning(answer, delta)
  if (Array.isArray(delta.reasoning_details))
    for (const value of delta.reasoning_details) addReasoningDetail(answer, value)
  addContent(answer, delta.content)
  if (Array.isArray(delta.annotations)) for (const value of delta.annotations) addAnnotation(answer, value)
  if (isText(delta.refusal)) answer.events.push({ type: 'refusal', text: delta.refusal })
  if (Array.isArray(delta.tool_calls)) {
    for (const [position, call] of delta.tool_calls.entries()) {
      if (isObject(call) && !answer.ended) addCall(answer, chunk.id, call, position)
    }
  }
  if (answer.ended || typeof choice.finish_reason !== 'string' || answer.reason !== undefined) return
  readReason(answer, choice.finish_reason)
}

function hasOutput(delta: JsonObject): boolean {
  const { content, refusal, reasoning_content: reasoningContent, reasoning } = delta
  return (
    [content, refusal, reasoningContent, reasoning].some(isText) ||
    contentParts(content).length > 0 ||
    [delta.tool_calls, delta.reasoning_details].some(Array.isArray)
  )
}

/** A citation, as OpenRouter and OpenAI's search models send it. */
function addAnnotation(answer: Answer, value: unknown): void {
  const annotation = isObject(value) && value.type === 'url_citation' ? readCitation(value.url_citation) : undefined
  if (annotation !== undefined) answer.events.push({ type: 'annotation', annotation })
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== ''
}

/** DeepSeek and others send `reasoning_content`; vLLM, OpenRouter and Ollama `reasoning`. Servers that send both send one text twice. */
function addReasoning(answer: Answer, delta: JsonObject): void {
  const name = isText(delta.reasoning_content) ? 'reasoning_content' : 'reasoning'
  const text = delta[name]
  if (isText(text)) addReasoningText(answer, name, text)
}

function addReasoningText(answer: Answer, name: string, text: string): void {
  answer.reasoning ??= { name, text: '' }
  answer.reasoning.text += text
  answer.events.push({ type: 'reasoning', text })
}

/** Text, or a list of parts. */
function addContent(answer: Answer, content: unknown): void {
  for (const { type, text } of isText(content) ? [{ type: 'text', text: content }] : contentParts(content)) {
    if (type === thinking) addReasoningText(answer, thinking, text)
    else {
      answer.text += text
      answer.events.push({ type: 'text', text })
    }
  }
}

/** The type of Mistral's parts with reasoning. Their text is a list of parts again. */
const thinking = 'thinking'

type ContentPart = { readonly type: string; readonly text: string }

/** The parts that have text. Mistral's reasoning models send content as a list. */
function contentParts(content: unknown): readonly ContentPart[] {
  if (!Array.isArray(content)) return []
  return content.filter(isObject).flatMap((part) => {
    if (part.type === 'text') return isText(part.text) ? [{ type: 'text', text: part.text }] : []
    if (part.type !== thinking) return []
    if (isText(part.thinking)) return [{ type: thinking, text: part.thinking }]
    const inner: readonly unknown[] = Array.isArray(part.thinking) ? part.thinking : []
    return inner.filter(isObject).flatMap(({ text }) => (isText(text) ? [{ type: thinking, text }] : []))
  })
}

/** Encrypted reasoning, or readable reasoning with its signature. Readable reasoning also comes as text. */
function addReasoningDetail(answer: Answer, value: unknown): void {
  if (!isObject(value)) return
  if (value.type === 'reasoning.encrypted' && typeof value.data === 'string') {
    answer.events.push({ type: 'sealed-reasoning', bytes: value.data.length })
  }
  const { reasoningDetails: details } = answer
  const last = details.at(-1)
  const continues = value.type === 'reasoning.text' && last?.type === value.type && last.index === value.index
  if (!continues) {
    details.push(value)
    return
  }
  // The signature comes last, often without text.
  const given = Object.entries(value).filter(([, member]) => member !== null)
  const text = [last.text, value.text].filter(isText).join('')
  details[details.length - 1] = { ...last, ...Object.fromEntries(given), text }
}

/** A fragment with a new id and a name begins another call, even where the server gives all calls the same index. */
function addCall(answer: Answer, chunkId: unknown, fragment: JsonObject, position: number): void {
  const index = typeof fragment.index === 'number' ? fragment.index : position
  const called = isObject(fragment.function) ? fragment.function : {}
  let call = answer.calls.get(index)
  const isOther = isText(fragment.id) && isText(called.name) && fragment.id !== call?.id
  if (call === undefined || isOther) {
    if (!isText(called.name)) return
    const place = String(answer.allCalls.length)
    // Every call needs an id that is unique within the answer: results are matched by it.
    const id = isText(fragment.id) ? fragment.id : derivedCallId(`${String(chunkId)} ${place}`)
    call = { place, id, name: called.name, arguments: '', extraContent: undefined }
    answer.calls.set(index, call)
    answer.allCalls.push(call)
    answer.events.push(...answer.orderedCalls.begin(place, id, called.name))
  }
  if (isObject(fragment.extra_content)) call.extraContent = fragment.extra_content
  const given = isObject(called.arguments) ? JSON.stringify(called.arguments) : called.arguments
  if (!isText(given)) return
  call.arguments += given
  const events = answer.orderedCalls.add(call.place, given)
  if (events === undefined) fail(answer, 'arguments_too_large', 'The model sent an event that is too large.')
  else answer.events.push(...events)
}

const failedReasons: Readonly<Record<string, string>> = {
  error: 'server_error',
  abort: 'server_error',
  insufficient_system_resource: 'overloaded',
}

function readReason(answer: Answer, reason: string): void {
  const failure = failedReasons[reason]
  if (failure !== undefined) fail(answer, failure, 'The model stopped early.')
  else if (reason === 'length' || reason === 'model_length') {
    // Leave truncated calls as they are: completing them would present broken arguments as valid.
    answer.reason = 'length'
  } else if (reason === 'content_filter') answer.reason = 'content_filter'
  else {
    answer.events.push(...answer.orderedCalls.finishAll())
    // Many servers end a round with calls with `stop`.
    answer.reason = answer.allCalls.length > 0 ? 'tool_calls' : 'stop'
  }
}

function finish(answer: Answer): void {
  const { reason, usage, allCalls } = answer
  if (reason === 'tool_calls') {
    answer.events.push({
      type: 'item',
      index: 0,
      item: assistantItem(answer),
      said: answer.text,
      callIds: allCalls.map(({ id }) => id),
    })
  }
  answer.events.push({ type: 'finish', reason: reason!, ...(usage !== undefined && { usage }) })
  answer.ended = true
}

/** The round as a message, to send back with the results of its calls. */
function assistantItem({ text, reasoning, reasoningDetails, allCalls }: Answer): JsonObject {
  return {
    role: 'assistant',
    ...contentAndReasoning(text, reasoning),
    ...(reasoningDetails.length > 0 && { reasoning_details: reasoningDetails }),
    tool_calls: allCalls.map((call) => ({
      id: call.id,
      type: 'function',
      function: { name: call.name, arguments: call.arguments },
      ...(call.extraContent !== undefined && { extra_content: call.extraContent }),
    })),
  }
}

function contentAndReasoning(text: string, reasoning: Answer['reasoning']): JsonObject {
  if (reasoning?.name !== thinking) {
    return { content: text === '' ? null : text, ...(reasoning !== undefined && { [reasoning.name]: reasoning.text }) }
  }
  const thoughts = { type: thinking, thinking: [{ type: 'text', text: reasoning.text }] }
  return { content: text === '' ? [thoughts] : [thoughts, { type: 'text', text }] }
}

function fail(answer: Answer, code: string, message: string): void {
  const { usage } = answer
  answer.events.push({ type: 'failed', code, message, ...(usage !== undefined && { usage }) })
  answer.ended = true
}

/** With the member names that `readUsage` expects. */
function reportedUsage(usage: JsonObject): JsonObject {
  const prompt = isObject(usage.prompt_tokens_details) ? usage.prompt_tokens_details : {}
  const cached = prompt.cached_tokens ?? usage.prompt_cache_hit_tokens
  return {
    input_tokens: usage.prompt_tokens,
    input_tokens_details: { cached_tokens: cached },
    ...reportedOutput(usage, cached),
  }
}

/** Some servers do not include reasoning in the completion tokens. Their total shows it. */
function reportedOutput(usage: JsonObject, cached: unknown): JsonObject {
  const details = isObject(usage.completion_tokens_details) ? usage.completion_tokens_details : {}
  const { prompt_tokens: input, completion_tokens: output, total_tokens: total } = usage
  const reasoning = details.reasoning_tokens ?? undefined
  const apart = [input, output, total].every(Number.isInteger) ? Number(total) - Number(input) - Number(output) : 0
  // Google's endpoint reports no reasoning at all. A difference as large as the cached tokens is input.
  const isApart = apart > 0 && (reasoning === undefined ? apart !== cached : apart === reasoning)
  return {
    output_tokens: isApart ? Number(output) + apart : output,
    output_tokens_details: { reasoning_tokens: isApart ? apart : reasoning },
  }
}
