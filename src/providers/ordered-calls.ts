import type { CallEvent } from '../inference/chat-events.ts'

/** Emits the calls of one answer one after another, in whatever order their fragments arrive. */
export type OrderedCalls = {
  begin(place: string, id: string, name: string): readonly CallEvent[]
  /** More of a call's arguments; undefined when the buffer limit is exceeded. */
  add(place: string, text: string): readonly CallEvent[] | undefined
  /** The complete arguments of a call. Emits the part that was not emitted yet. */
  finish(place: string, text: string): readonly CallEvent[]
  /** No more fragments follow: emits everything that is buffered. */
  finishAll(): readonly CallEvent[]
}

type Call = {
  readonly index: number
  readonly id: string
  readonly name: string
  begun: boolean
  done: boolean
  /** Characters of the arguments received so far. */
  received: number
  /** Fragments that wait for earlier calls. */
  waiting: string[]
}

const waitingCharactersMax = 4 * 1024 * 1024

/**
 * Clients concatenate the fragments of a call by position and break when two calls interleave. So fragments wait until all earlier calls
 * are complete.
 */
export function createOrderedCalls(): OrderedCalls {
  const calls: Call[] = []
  const byPlace = new Map<string, Call>()
  let currentIndex = 0
  let waitingCharacters = 0

  /** Emits the buffered fragments of the current call, and continues while calls are complete. */
  function advance(): CallEvent[] {
    const events: CallEvent[] = []
    for (let call = calls[currentIndex]; call !== undefined; call = calls[currentIndex]) {
      const { index, id, name } = call
      if (!call.begun) events.push({ type: 'tool-call', index, id, name })
      call.begun = true
      for (const text of call.waiting.splice(0)) {
        waitingCharacters -= text.length
        events.push({ type: 'tool-arguments', index, text })
      }
      if (!call.done) break
      currentIndex += 1
    }
    return events
  }

  function receive(call: Call, text: string): void {
    if (text === '') return
    call.received += text.length
    waitingCharacters += text.length
    call.waiting.push(text)
  }

  return {
    begin(place, id, name) {
      if (byPlace.has(place)) return []
      const call: Call = { index: calls.length, id, name, begun: false, done: false, received: 0, waiting: [] }
      calls.push(call)
      byPlace.set(place, call)
      return advance()
    },
    add(place, text) {
      const call = byPlace.get(place)
      if (call === undefined || call.done) return []
      if (call.index > currentIndex && waitingCharacters + text.length > waitingCharactersMax) return undefined
      receive(call, text)
      return advance()
    },
    finish(place, text) {
      const call = byPlace.get(place)
      if (call === undefined || call.done) return []
      receive(call, text.slice(call.received))
      call.done = true
      return advance()
    },
    finishAll() {
      for (const call of calls) call.done = true
      return advance()
    },
  }
}
