import type { CallEvent } from '../inference/chat-events.ts'

/** Puts the calls of one answer in a row, whatever order their pieces come in. */
export type OrderedCalls = {
  begin(place: string, id: string, name: string): readonly CallEvent[]
  /** More of a call's arguments; undefined when more would have to be kept back than is allowed. */
  add(place: string, text: string): readonly CallEvent[] | undefined
  /** The whole arguments of a call: tells what of them has not been told. */
  finish(place: string, text: string): readonly CallEvent[]
  /** No more pieces will come: tells everything kept back. */
  finishAll(): readonly CallEvent[]
  readonly count: number
}

type Call = {
  readonly index: number
  readonly id: string
  readonly name: string
  begun: boolean
  done: boolean
  /** Characters of the arguments received so far. */
  received: number
  /** Pieces that wait for the calls before this one. */
  waiting: string[]
}

const waitingCharactersMax = 4 * 1024 * 1024

/**
 * Clients glue pieces of a call together by position and break when two calls interleave, so a call's pieces wait until
 * every call before it is whole.
 */
export function createOrderedCalls(): OrderedCalls {
  const calls: Call[] = []
  const byPlace = new Map<string, Call>()
  let currentIndex = 0
  let waitingCharacters = 0

  /** Tells what the current call has in store, and moves on while calls are whole. */
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
    get count() {
      return calls.length
    },
  }
}
