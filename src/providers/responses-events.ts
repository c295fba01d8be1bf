import type { EventSourceParser } from 'eventsource-parser'
import { type ChatEvent, type FinishReason, nextParagraph } from '../inference/chat-events.ts'
import { isObject, type JsonObject } from '../inference/parameter.ts'
import {
  createEventParser,
  parseData,
  readCitation,
  readIndex,
  type StreamedAnswer,
  takeEvents,
} from './event-stream.ts'
import { createOrderedCalls, type OrderedCalls } from './ordered-calls.ts'
import type { EventReader } from './protocol.ts'
import { readFault } from './upstream-fault.ts'

/**
 * Reads the server-sent events of `POST /responses`. Lenient: it reads the members it uses and ignores unknown ones. `hidden` lists
 * words, such as the upstream's host, that no message may contain. `outputTokensMax` is the limit that was sent with the request.
 */
export function createResponsesReader(
  hidden: readonly string[] = [],
  outputTokensMax = Number.POSITIVE_INFINITY,
): EventReader {
  const answer = createAnswer(hidden, outputTokensMax)
  let parser: EventSourceParser | undefined
  // Whether the parser has no partial event: then the fast path may read the next chunk.
  let isBetweenEvents = true
  const push = (text: string): ChatEvent[] => {
    if (answer.ended) return []
    const from = isBetweenEvents ? readPlainEvents(answer, text) : 0
    if (from < text.length) {
      parser ??= createEventParser(
        ({ event, data }) => readMessage(answer, event, data),
        (code, message) => fail(answer, code, message),
      )
      parser.feed(text.slice(from))
      isBetweenEvents = text.endsWith('\n\n')
    }
    return takeEvents(answer)
  }
  return {
    push,
    end() {
      // Accept a last event without its empty line.
      const events = push('\n\n')
      if (!answer.ended) fail(answer, 'upstream_ended', 'The answer ended early.')
      return [...events, ...takeEvents(answer)]
    },
    get ended() {
      return answer.ended
    },
    // The last event carries the finish reason and the usage: no answer is complete before it.
    isComplete: false,
  }
}

/** State while an answer is being read. */
type Answer = StreamedAnswer & {
  readonly hidden: readonly string[]
  readonly outputTokensMax: number
  /** Length of all text so far: the offset of citations in a later message. */
  textLength: number
  /** Where each text part began, by its position. */
  readonly partStarts: Map<string, number>
  readonly annotationCounts: Map<string, number>
  /** Items that were streamed, so that the finished item is not emitted again. */
  readonly streamedItems: Set<string>
  lastReasoningPlace: string | undefined
  /** The first chunk of the current text part. */
  lastText: JsonObject | undefined
  /** Undefined until the first call: most answers have none. */
  calls: OrderedCalls | undefined
}

function createAnswer(hidden: readonly string[], outputTokensMax: number): Answer {
  return {
    hidden,
    outputTokensMax,
    events: [],
    accepted: false,
    ended: false,
    textLength: 0,
    partStarts: new Map(),
    annotationCounts: new Map(),
    streamedItems: new Set(),
    lastReasoningPlace: undefined,
    lastText: undefined,
    calls: undefined,
  }
}

// Only says that the request was accepted.
const announcement = 'response.created'

type Handler = (answer: Answer, event: JsonObject) => void

const handlers: ReadonlyMap<unknown, Handler> = new Map<string, Handler>([
  [announcement, accept],
  ['response.output_item.added', beginItem],
  ['response.output_item.done', finishItem],
  ['response.output_text.delta', (answer, event) => addText(answer, event, event.delta)],
  ['response.output_text.annotation.added', (answer, event) => addAnnotation(answer, event, event.annotation)],
  ['response.refusal.delta', (answer, event) => addRefusal(answer, event, event.delta)],
  ['response.reasoning_summary_text.delta', (answer, event) => addReasoning(answer, event, event.delta)],
  ['response.reasoning_text.delta', (answer, event) => addReasoning(answer, event, event.delta)],
  ['response.function_call_arguments.delta', addArguments],
  ['response.function_call_arguments.done', finishArguments],
  ['response.completed', complete],
  ['response.incomplete', breakOff],
  ['response.failed', (answer, event) => failWith(answer, isObject(event.response) ? event.response : event)],
  ['error', failWith],
])

// Frequent or large events that we do not use: their JSON is not parsed.
const unusedTypes = new Set([
  'response.in_progress',
  'response.content_part.added',
  'response.content_part.done',
  'response.output_text.done',
  'response.refusal.done',
  'response.reasoning_summary_part.added',
  'response.reasoning_summary_part.done',
  'response.reasoning_summary_text.done',
  'response.reasoning_text.done',
])

function readMessage(answer: Answer, type: string | undefined, data: string): void {
  if (answer.ended || unusedTypes.has(type ?? '') || data === '[DONE]') return
  if (type === announcement) {
    accept(answer)
    return
  }
  if (type === 'response.output_item.done' && finishStreamedMessage(answer, data)) return
  const event = (type === 'response.completed' ? completedWithUsage(data) : undefined) ?? parseData(data)
  if (event === undefined) return
  handlers.get(event.type ?? type)?.(answer, event)
}

// The last two events repeat the whole answer. In the form in which upstreams write them, it is not parsed again.

const streamedMessage =
  /^\{"type":"response\.output_item\.done",(?:"sequence_number":\d+,)?"output_index":(\d+),"item":\{(?:"id":"[^"\\]*",)?"type":"message"/

/** A message that was streamed: only a further round reads its item. False for every other form. */
function finishStreamedMessage(answer: Answer, data: string): boolean {
  const index = streamedMessage.exec(data)?.[1]
  if (index === undefined || !answer.streamedItems.has(`#${index}`) || data.includes('"annotations":[{')) return false
  let item: JsonObject | undefined
  const read = () => {
    const event: unknown = JSON.parse(data)
    return isObject(event) && isObject(event.item) ? event.item : {}
  }
  emit(answer, {
    type: 'item',
    index: Number(index),
    get item() {
      item ??= read()
      return item
    },
    get said() {
      return contentsOf(this.item).said ?? ''
    },
  })
  return true
}

/** A usage, with one level of objects in it. */
const usageObject = /\{(?:[^{}"]|"[^"\\]*"|\{(?:[^{}"]|"[^"\\]*")*\})*\}/y
/** The simple members that may follow the usage of a response, and the end of the event. */
const afterUsage =
  /(?:,"[^"\\]*":(?:[^"{}[\],\\]+|"[^"\\]*"|\{[^{}\\]*\}|\[[^[\]{}\\]*\]))*\}(?:,"sequence_number":\d+)?\}$/y
const usageMember = '"usage":'

/** The event with nothing but the usage of its response. Undefined unless what follows proves that it is the response's. */
function completedWithUsage(data: string): JsonObject | undefined {
  if (!data.startsWith('{"type":"response.completed"')) return undefined
  const at = data.lastIndexOf(usageMember)
  if (at === -1) return undefined
  usageObject.lastIndex = at + usageMember.length
  const text = usageObject.exec(data)?.[0]
  if (text === undefined) return undefined
  afterUsage.lastIndex = usageObject.lastIndex
  const usage = afterUsage.test(data) ? parseData(text) : undefined
  return usage && { type: 'response.completed', response: { usage } }
}

// Upstreams write events exactly like this, and nearly all of them are text deltas. The fast path takes half of the time of the
// general parser.
const plainEvent = /event: ([\w.]+)\ndata: (.*)\n\n/y
const plainTextDelta =
  /event: response\.output_text\.delta\ndata: \{"type":"response\.output_text\.delta",(?:"sequence_number":\d+,)?"item_id":"([^"\\\r\n]*)","output_index":(\d+),"content_index":(\d+),"delta":"([^"\\\r\n]*)"(?:,"logprobs":\[\])?(?:,"obfuscation":"[^"\\\r\n]*")?\}\n\n/y

/** Reads whole events of exactly those forms. Returns where something else begins. */
function readPlainEvents(answer: Answer, text: string): number {
  let at = 0
  while (at < text.length && !answer.ended) {
    plainTextDelta.lastIndex = at
    const delta = plainTextDelta.exec(text)
    if (delta !== null) {
      at = plainTextDelta.lastIndex
      const [, itemId, outputIndex, contentIndex, piece] = delta
      addText(
        answer,
        { item_id: itemId, output_index: Number(outputIndex), content_index: Number(contentIndex) },
        piece,
      )
      continue
    }
    plainEvent.lastIndex = at
    const event = plainEvent.exec(text)
    if (event === null) return at
    at = plainEvent.lastIndex
    readMessage(answer, event[1], event[2]!)
  }
  return text.length
}

/** Also called by the first output: some upstreams do not send the event. */
function accept(answer: Answer): void {
  if (answer.accepted) return
  answer.accepted = true
  answer.events.push({ type: 'accepted' })
}

function emit(answer: Answer, ...events: readonly ChatEvent[]): void {
  accept(answer)
  answer.events.push(...events)
}

/** Deltas name their item by position and by id; one of them is enough. */
function itemPlace(event: JsonObject): string {
  if (typeof event.output_index === 'number') return `#${event.output_index}`
  return String(event.item_id ?? (isObject(event.item) ? event.item.id : undefined))
}

function partPlace(event: JsonObject): string {
  return `${itemPlace(event)}/${String(event.content_index ?? 0)}`
}

function addText(answer: Answer, event: JsonObject, text: unknown): void {
  if (typeof text !== 'string' || text === '') return
  accept(answer)
  if (isElsewhere(answer.lastText, event)) {
    beginPart(answer, event, text)
    return
  }
  answer.textLength += text.length
  answer.events.push({ type: 'text', text })
}

/** Messages of one answer become paragraphs, like those of several rounds. The parts of one message are one text. */
function beginPart(answer: Answer, event: JsonObject, text: string): void {
  const last = answer.lastText
  const continues = last === undefined || itemPlace(last) === itemPlace(event)
  const piece = continues ? { type: 'text' as const, text } : nextParagraph('text', text)
  answer.lastText = event
  answer.textLength += piece.text.length
  const place = partPlace(event)
  if (!answer.partStarts.has(place)) answer.partStarts.set(place, answer.textLength - text.length)
  answer.streamedItems.add(itemPlace(event))
  answer.events.push(piece)
}

/** Nearly every delta continues the previous one: then its position need not be looked up. */
function isElsewhere(last: JsonObject | undefined, event: JsonObject): boolean {
  if (last === undefined || last.content_index !== event.content_index) return true
  return last.output_index !== event.output_index || last.item_id !== event.item_id
}

function addRefusal(answer: Answer, event: JsonObject, text: unknown): void {
  if (typeof text !== 'string' || text === '') return
  answer.streamedItems.add(itemPlace(event))
  emit(answer, { type: 'refusal', text })
}

/** Parts of a summary, and the summaries of several items, become paragraphs: the stream itself does not separate them. */
function addReasoning(answer: Answer, event: JsonObject, text: unknown): void {
  if (typeof text !== 'string' || text === '') return
  const place = `${itemPlace(event)}/${String(event.summary_index ?? '')}/${String(event.content_index ?? '')}`
  const isFirst = answer.lastReasoningPlace === undefined || answer.lastReasoningPlace === place
  answer.lastReasoningPlace = place
  answer.streamedItems.add(itemPlace(event))
  emit(answer, isFirst ? { type: 'reasoning', text } : nextParagraph('reasoning', text))
}

/** The upstream counts from the start of a part. The client sees all parts of all messages as one text. */
function addAnnotation(answer: Answer, event: JsonObject, value: unknown): void {
  const place = partPlace(event)
  answer.annotationCounts.set(place, (answer.annotationCounts.get(place) ?? 0) + 1)
  const citation = isObject(value) && value.type === 'url_citation' ? readCitation(value) : undefined
  if (citation === undefined) return
  const shift = answer.partStarts.get(place) ?? answer.textLength
  const [startIndex, endIndex] = [shift + citation.startIndex, shift + citation.endIndex]
  emit(answer, { type: 'annotation', annotation: { ...citation, startIndex, endIndex } })
}

function beginItem(answer: Answer, event: JsonObject): void {
  if (isObject(event.item) && event.item.type === 'function_call') beginCall(answer, event, event.item)
}

function beginCall(answer: Answer, event: JsonObject, item: JsonObject): void {
  if (typeof item.call_id !== 'string' || typeof item.name !== 'string') return
  answer.calls ??= createOrderedCalls()
  emit(answer, ...answer.calls.begin(itemPlace(event), item.call_id, item.name))
}

function addArguments(answer: Answer, event: JsonObject): void {
  if (typeof event.delta !== 'string' || event.delta === '') return
  const events = answer.calls === undefined ? [] : answer.calls.add(itemPlace(event), event.delta)
  if (events === undefined) fail(answer, 'arguments_too_large', 'The model sent an event that is too large.')
  else emit(answer, ...events)
}

function finishArguments(answer: Answer, event: JsonObject): void {
  if (typeof event.arguments !== 'string') return
  emit(answer, ...(answer.calls?.finish(itemPlace(event), event.arguments) ?? []))
}

function finishItem(answer: Answer, event: JsonObject): void {
  if (!isObject(event.item)) return
  const item = event.item
  if (item.type === 'message') finishMessage(answer, event, item)
  if (item.type === 'reasoning') finishReasoning(answer, event, item)
  if (item.type === 'function_call' && typeof item.arguments === 'string') {
    beginCall(answer, event, item)
    emit(answer, ...(answer.calls?.finish(itemPlace(event), item.arguments) ?? []))
  }
  // Unencrypted reasoning is useless to an upstream that has not stored it.
  if (item.type === 'reasoning' && !('encrypted_content' in item)) return
  emit(answer, { type: 'item', index: readIndex(event.output_index), item, ...contentsOf(item) })
}

function contentsOf(item: JsonObject): { said?: string; callIds?: readonly string[]; sealedBytes?: number } {
  if (item.type === 'function_call') return typeof item.call_id === 'string' ? { callIds: [item.call_id] } : {}
  if (item.type === 'reasoning') {
    return typeof item.encrypted_content === 'string' ? { sealedBytes: item.encrypted_content.length } : {}
  }
  if (item.type !== 'message') return {}
  return {
    said: objectsOf(item.content)
      .flatMap(({ text }) => (typeof text === 'string' ? [text] : []))
      .join(''),
  }
}

/** Some upstreams do not stream a message, or its citations, and send them only with the finished item. */
function finishMessage(answer: Answer, event: JsonObject, item: JsonObject): void {
  const streamed = answer.streamedItems.has(itemPlace(event))
  for (const [index, part] of objectsOf(item.content).entries()) {
    const place = { output_index: event.output_index, item_id: event.item_id ?? item.id, content_index: index }
    if (!streamed && part.type === 'output_text') addText(answer, place, part.text)
    if (!streamed && part.type === 'refusal') addRefusal(answer, place, part.refusal)
    const seen = answer.annotationCounts.get(partPlace(place)) ?? 0
    for (const annotation of objectsOf(part.annotations).slice(seen)) addAnnotation(answer, place, annotation)
  }
}

function finishReasoning(answer: Answer, event: JsonObject, item: JsonObject): void {
  if (answer.streamedItems.has(itemPlace(event))) return
  const summary = objectsOf(item.summary)
  const parts = summary.length > 0 ? summary : objectsOf(item.content)
  for (const [index, part] of parts.entries()) {
    addReasoning(answer, { ...event, summary_index: index }, part.text)
  }
}

function objectsOf(value: unknown): readonly JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : []
}

function complete(answer: Answer, event: JsonObject): void {
  // llama.cpp also calls an answer completed that it cut at the limit. A report above the limit is not believed, as in the bill.
  if (outputTokensOf(event.response) === answer.outputTokensMax) {
    finish(answer, 'length', event.response)
    return
  }
  // The answer is complete, so every call in it is, even if the event that says so was lost.
  if (answer.calls !== undefined) emit(answer, ...answer.calls.finishAll())
  finish(answer, answer.calls !== undefined ? 'tool_calls' : 'stop', event.response)
}

/** Leave truncated calls as they are: completing them would present broken arguments as valid. */
function breakOff(answer: Answer, event: JsonObject): void {
  const response = isObject(event.response) ? event.response : {}
  const details = isObject(response.incomplete_details) ? response.incomplete_details : {}
  // Every other reason, known or not, left the answer incomplete too, so it must not be `stop`.
  finish(answer, details.reason === 'content_filter' ? 'content_filter' : 'length', response)
}

function finish(answer: Answer, reason: FinishReason, response: unknown): void {
  emit(answer, { type: 'finish', reason, ...usageOf(response) })
  answer.ended = true
}

function outputTokensOf(response: unknown): unknown {
  const usage = isObject(response) ? response.usage : undefined
  return isObject(usage) ? usage.output_tokens : undefined
}

function failWith(answer: Answer, source: JsonObject): void {
  const fault = readFault(source, answer.hidden)
  fail(answer, fault.code, fault.message === '' ? 'The model failed to answer.' : fault.message, source)
}

function fail(answer: Answer, code: string, message: string, response?: unknown): void {
  answer.events.push({ type: 'failed', code, message, ...usageOf(response) })
  answer.ended = true
}

function usageOf(response: unknown): { usage?: unknown } {
  return isObject(response) && response.usage !== undefined ? { usage: response.usage } : {}
}
