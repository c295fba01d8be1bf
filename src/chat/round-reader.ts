import type { Bill } from '../billing/bill.ts'
import { type ChatEvent, type FinishReason, type ItemEvent, paragraph, writtenText } from '../inference/chat-events.ts'
import type { Turn } from '../providers/model-request.ts'
import type { Offer } from './tool-offer.ts'

/** A call of one of our tools, as the model wrote it. */
export type OwnCall = { readonly id: string; readonly name: string; arguments: string }

export type RoundEnd = Extract<ChatEvent, { readonly type: 'finish' | 'failed' }>

/** How much of the answer the client has received in the rounds so far. The next round continues it. */
export type DeliveredSoFar = { rounds: number; textLength: number; hasReasoning: boolean }

/** An endless upstream must not fill our memory: beyond this, text is shown as it arrives. */
const heldCharactersMax = 8 * 1024 * 1024

/**
 * Reads the events of one round. Passes them to the client, except calls of our own tools and the round's end, which may not be the
 * answer's end. Text can be held back: when the client asked for JSON, text before a search would be a second document before the
 * answer.
 */
export class RoundReader {
  readonly calls: OwnCall[] = []
  end: RoundEnd | undefined
  /** The text of a round after the first, to find citations in. */
  text = ''
  /** Where this round's text begins in the answer. */
  readonly textStart: number
  readonly #bill: Bill
  readonly #offer: Offer
  readonly #delivered: DeliveredSoFar
  readonly #items = new Map<number, ItemEvent>()
  readonly #ours = new Map<number, OwnCall>()
  /** Separators before the first text and the first reasoning of this round. */
  #textJoint: string
  #reasoningJoint: string
  #clientCalls = 0
  /** Text and citations, held until we know whether they are part of the answer; undefined when nothing is held back. */
  #held: ChatEvent[] | undefined

  #heldCharacters = 0

  constructor(bill: Bill, offer: Offer, delivered: DeliveredSoFar, holdsText: boolean) {
    this.#bill = bill
    this.#offer = offer
    this.#delivered = delivered
    this.#held = holdsText ? [] : undefined
    delivered.rounds += 1
    this.#textJoint = delivered.textLength > 0 ? paragraph : ''
    this.#reasoningJoint = delivered.hasReasoning ? paragraph : ''
    this.textStart = delivered.textLength + this.#textJoint.length
  }

  get reason(): FinishReason | undefined {
    return this.end?.type === 'finish' ? this.end.reason : undefined
  }

  /** Our calls that wait for a result. None when the client's own tools were also called: the client has to answer first. */
  get pendingCalls(): readonly OwnCall[] {
    return this.reason === 'tool_calls' && this.#clientCalls === 0 ? this.calls : []
  }

  /** This round's output, for later rounds. `provider` wrote it. */
  turnOf(provider: string): Omit<Turn, 'results'> {
    const items = [...this.#items].sort(([one], [other]) => one - other).map(([, item]) => item)
    // Some upstreams do not repeat their calls as finished items.
    const listed = new Set(items.flatMap(({ callIds = [] }) => callIds))
    return {
      provider,
      items: items.map(({ item }) => item),
      unlistedCalls: this.calls.filter(({ id }) => !listed.has(id)),
      text: items.map(({ said = '' }) => said).join(''),
      calls: this.calls,
    }
  }

  /** Returns the events that the client gets. */
  take(events: readonly ChatEvent[]): readonly ChatEvent[] {
    if (this.#held === undefined && this.#isPlain(events)) {
      this.#bill.addAll(events)
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
      // A call of the client's tool ends the model's turn: the text before it is part of the answer and comes first.
      if (shown.type === 'tool-call') passed.push(...this.release())
      this.#bill.add(event)
      passed.push(shown)
    }
    return passed
  }

  /** Returns the held events, and holds nothing from now on. A round whose text is not part of the answer never calls this. */
  release(): readonly ChatEvent[] {
    const held = this.#held ?? []
    this.#held = undefined
    if (held.length > 0) this.#bill.noteReleased()
    return held.flatMap((event) => this.#takeOne(event) ?? [])
  }

  #hold(event: ChatEvent, held: ChatEvent[]): boolean {
    if (event.type !== 'text' && event.type !== 'annotation') return false
    held.push(event)
    if (event.type === 'text') {
      this.#heldCharacters += event.text.length
      this.#bill.addHeld(writtenText(event))
    }
    return true
  }

  /** The hot path: plain text of a first round, where only the length matters. */
  #isPlain(events: readonly ChatEvent[]): boolean {
    if (this.#delivered.rounds > 1) return false
    let length = 0
    let hasReasoning = this.#delivered.hasReasoning
    for (const event of events) {
      if (event.type === 'text') length += event.text.length
      else if (event.type === 'reasoning') hasReasoning = true
      else if (event.type !== 'refusal' && event.type !== 'accepted') return false
    }
    this.#delivered.textLength += length
    this.#delivered.hasReasoning = hasReasoning
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
        if (this.#offer.size > 0) this.#items.set(event.index, event)
        if (event.sealedBytes !== undefined) this.#bill.addSealed(event.sealedBytes)
        return undefined
      case 'sealed-reasoning':
        this.#bill.addSealed(event.bytes)
        return undefined
      case 'usage-so-far':
        this.#bill.noteReported(event.usage)
        return undefined
      case 'finish':
      case 'failed':
        this.end = event
        return undefined
      default:
        return event
    }
  }

  #takeText({ text }: Extract<ChatEvent, { type: 'text' }>): ChatEvent {
    const shown = this.#textJoint + text
    this.#textJoint = ''
    this.#delivered.textLength += shown.length
    if (this.#delivered.rounds > 1) this.text += text
    return { type: 'text', text: shown }
  }

  #takeReasoning({ text }: Extract<ChatEvent, { type: 'reasoning' }>): ChatEvent {
    const shown = this.#reasoningJoint + text
    this.#reasoningJoint = ''
    this.#delivered.hasReasoning = true
    return { type: 'reasoning', text: shown }
  }

  #shifted(event: Extract<ChatEvent, { type: 'annotation' }>): ChatEvent {
    if (this.textStart === 0) return event
    const { annotation } = event
    const startIndex = annotation.startIndex + this.textStart
    const endIndex = annotation.endIndex + this.textStart
    return { type: 'annotation', annotation: { ...annotation, startIndex, endIndex } }
  }

  /** Renumbers the client's calls, so that our own calls leave no gaps. */
  #takeCall(event: Extract<ChatEvent, { type: 'tool-call' | 'tool-arguments' }>): ChatEvent | undefined {
    if (event.type === 'tool-call') {
      if (!this.#offer.has(event.name)) {
        this.#clientCalls += 1
        return { ...event, index: this.#clientCalls - 1 }
      }
      const call = { id: event.id, name: event.name, arguments: '' }
      this.calls.push(call)
      this.#ours.set(event.index, call)
      this.#bill.addHidden(event.name)
      return undefined
    }
    const call = this.#ours.get(event.index)
    if (call === undefined) return { ...event, index: this.#clientCalls - 1 }
    call.arguments += event.text
    this.#bill.addHidden(event.text)
    return undefined
  }
}
