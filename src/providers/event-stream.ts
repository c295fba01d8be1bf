import { createParser, type EventSourceMessage, type EventSourceParser } from 'eventsource-parser'
import type { Annotation, ChatEvent } from '../inference/chat-events.ts'
import { isObject, type JsonObject } from '../inference/parameter.ts'

/** One event may contain a whole answer, or all arguments of a call that writes a file. */
export const eventCharactersMax = 4 * 1024 * 1024

/** The state that the readers of both protocols keep. */
export type StreamedAnswer = {
  /** Read and not yet taken. */
  events: ChatEvent[]
  accepted: boolean
  ended: boolean
}

/** For events in any form, cut anywhere. */
export function createEventParser(
  onEvent: (message: EventSourceMessage) => void,
  fail: (code: string, message: string) => void,
): EventSourceParser {
  return createParser({
    maxBufferSize: eventCharactersMax,
    onEvent,
    onError(error) {
      if (error.type !== 'max-buffer-size-exceeded') return
      fail('event_too_large', 'The model sent an event that is too large.')
    },
  })
}

export function takeEvents(answer: StreamedAnswer): ChatEvent[] {
  const events = answer.events
  answer.events = []
  return events
}

/** Undefined when the data is not a JSON object. */
export function parseData(data: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(data)
    return isObject(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** The members of a `url_citation`. */
export function readCitation(value: unknown): Annotation | undefined {
  if (!isObject(value) || typeof value.url !== 'string') return undefined
  return {
    url: value.url,
    title: typeof value.title === 'string' ? value.title : '',
    startIndex: readIndex(value.start_index),
    endIndex: readIndex(value.end_index),
  }
}

/** 0 when the value is not an index. */
export function readIndex(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : 0
}
