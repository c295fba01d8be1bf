import type { Meter } from '../billing/meter.ts'
import { type ChatEvent, type FinishReason, paragraph, writtenText } from '../inference/chat-events.ts'
import type { JsonObject } from '../inference/parameter.ts'
import type { InputItem } from '../inference/responses-request.ts'
import type { Offer } from './tool-offer.ts'

/** A call of one of our tools, as the model wrote it. */
export type OwnCall = { readonly id: string; readonly name: string; arguments: string }

export type RoundEnd = Extract<ChatEvent, { readonly type: 'finish' | 'failed' }>

/** What of an answer the client has seen in the rounds so far: the next one continues it. */
export type Told = { rounds: number; textLength: number; hasReasoning: boolean }

/** An upstream that never ends must not fill our memory: past this, text is shown as it comes. */
const heldCharactersMax = 8 * 1024 * 1024

/**
 * Reads the events of one round. The client gets all of them but the calls of our own tools, which stay here, and the round's
 * end, which need not be the answer's. An answer of one round without such calls passes as it came, unless its text is to be
 * held: where JSON was asked for, what a model says before it searches would be a second document before the answer.
 */
export class RoundReader {
  readonly calls: OwnCall[] = []
  end: RoundEnd | undefined
  /** The text of a further round, for who looks for citations in it. */
  text = ''
  /** Where the text of this round begins in the answer. */
  readonly textStart: number
  readonly #meter: Meter
  readonly #offer: Offer
  readonly #told: Told
  readonly #items = new Map<number, InputItem>()
  readonly #ours = new Map<number, OwnCall>()
  /** What comes before the first text and the first reasoning of this round. */
  #textJoint: string
  #reasoningJoint: string
  #clientCalls = 0
  /** Text and its citations, kept until it is known whether they are the answer; undefined where everything passes at once. */
  #held: ChatEvent[] | undefined

  #heldCharacters = 0

  constructor(meter: Meter, offer: Offer, told: Told, holdsText: boolean) {
    this.#meter = meter
    this.#offer = offer
    this.#told = told
    this.#held = holdsText ? [] : undefined
    told.rounds += 1
    this.#textJoint = told.textLength > 0 ? paragraph : ''
    this.#reasoningJoint = told.hasReasoning ? paragraph : ''
    this.textStart = told.textLength + this.#textJoint.length
  }

  get reason(): FinishReason | undefined {
    return this.end?.type === 'finish' ? this.end.reason : undefined
  }

  /** Our calls that wait for a result. Beside a call of the client's own there are none: it is the client's turn then. */
  get pendingCalls(): readonly OwnCall[] {
    return this.reason === 'tool_calls' && this.#clientCalls === 0 ? this.calls : []
  }

  /** The output in its order, exactly as it came: what a further round is given to read. */
  get items(): readonly InputItem[] {
    const items = [...this.#items].sort(([one], [other]) => one - other).map(([, item]) => item)
    const replayed = items.filter((item) => item.type !== 'reasoning' || 'encrypted_content' in item)
    // An upstream that does not tell finished items has told the calls all the same.
    const known = new Set(replayed.map((item) => ('call_id' in item ? item.call_id : undefined)))
    const missing = this.calls.filter(({ id }) => !known.has(id))
    return [
      ...replayed,
      ...missing.map((call) => ({
        type: 'function_call',
        call_id: call.id,
        name: call.name,
        arguments: call.arguments,
      })),
    ]
  }

  /** The events that the client gets. */
  take(events: readonly ChatEvent[]): readonly ChatEvent[] {
    if (this.#held === undefined && this.#isPlain(events)) {
      this.#meter.see(events)
      return events
    }
    const passed: ChatEvent[] = []
    for (const event of events) {
      if (this.#held !== undefined && this.#hold(event, this.#held)) {
        if (this.#heldCharacters > heldCharactersMax) passed.push(...this.release())
        continue
      }
      const shown = this.#takeOne(event)
      if (shown === undefined) continue
      // The model's turn ends with a call of the client's: what it said before is part of the answer, and comes first.
      if (shown.type === 'tool-call') passed.push(...this.release())
      this.#meter.seeOne(event)
      passed.push(shown)
    }
    return passed
  }

  /** What was held: the client gets it after all, and from now on everything at once. A round that is not asked for it drops it. */
  release(): readonly ChatEvent[] {
    const held = this.#held ?? []
    this.#held = undefined
    if (held.length > 0) this.#meter.noteDelivered()
    return held.flatMap((event) => this.#takeOne(event) ?? [])
  }

  #hold(event: ChatEvent, held: ChatEvent[]): boolean {
    if (event.type !== 'text' && event.type !== 'annotation') return false
    held.push(event)
    if (event.type === 'text') {
      this.#heldCharacters += event.text.length
      this.#meter.seeHeld(writtenText(event))
    }
    return true
  }

  /** Nearly all that ever comes: words of a first round, of which nothing but their length matters here. */
  #isPlain(events: readonly ChatEvent[]): boolean {
    if (this.#told.rounds > 1) return false
    let length = 0
    let hasReasoning = this.#told.hasReasoning
    for (const event of events) {
      if (event.type === 'text') length += event.text.length
      else if (event.type === 'reasoning') hasReasoning = true
      else if (event.type !== 'refusal' && event.type !== 'accepted') return false
    }
    this.#told.textLength += length
    this.#told.hasReasoning = hasReasoning
    return true
  }

  #takeOne(event: ChatEvent): ChatEvent | undefined {
    switch (event.type) {
      case 'text':
        return this.#takeText(event)
      case 'reasoning':
        return this.#takeReasoning(event)
      case 'tool-call':
      case 'tool-arguments':
        return this.#takeCall(event)
      case 'annotation':
        return this.#shifted(event)
      case 'item':
        if (this.#offer.size > 0) this.#items.set(event.index, event.item)
        this.#seeSealed(event.item)
        return undefined
      case 'finish':
      case 'failed':
        this.end = event
        return undefined
      default:
        return event
    }
  }

  #seeSealed({ type, encrypted_content: sealed }: JsonObject): void {
    if (type === 'reasoning' && typeof sealed === 'string') this.#meter.seeSealed(sealed.length)
  }

  #takeText({ text }: Extract<ChatEvent, { type: 'text' }>): ChatEvent {
    const shown = this.#textJoint + text
    this.#textJoint = ''
    this.#told.textLength += shown.length
    if (this.#told.rounds > 1) this.text += text
    return { type: 'text', text: shown }
  }

  #takeReasoning({ text }: Extract<ChatEvent, { type: 'reasoning' }>): ChatEvent {
    const shown = this.#reasoningJoint + text
    this.#reasoningJoint = ''
    this.#told.hasReasoning = true
    return { type: 'reasoning', text: shown }
  }

  #shifted(event: Extract<ChatEvent, { type: 'annotation' }>): ChatEvent {
    if (this.textStart === 0) return event
    const { annotation } = event
    const startIndex = annotation.startIndex + this.textStart
    const endIndex = annotation.endIndex + this.textStart
    return { type: 'annotation', annotation: { ...annotation, startIndex, endIndex } }
  }

  /** Positions among the client's calls have no gaps where one of ours was. */
  #takeCall(event: Extract<ChatEvent, { type: 'tool-call' | 'tool-arguments' }>): ChatEvent | undefined {
    if (event.type === 'tool-call') {
      if (!this.#offer.has(event.name)) {
        this.#clientCalls += 1
        return { ...event, index: this.#clientCalls - 1 }
      }
      const call = { id: event.id, name: event.name, arguments: '' }
      this.calls.push(call)
      this.#ours.set(event.index, call)
      this.#meter.seeHidden(event.name)
      return undefined
    }
    const call = this.#ours.get(event.index)
    if (call === undefined) return { ...event, index: this.#clientCalls - 1 }
    call.arguments += event.text
    this.#meter.seeHidden(event.text)
    return undefined
  }
}
