import { type ChatEvent, writtenText } from '../inference/chat-events.ts'
import { charactersPerTokenMax } from '../inference/tokens.ts'
import { sealedEnvelopeBytes } from './hidden-reasoning.ts'

// Counted piece by piece, and beside the upstream's own minimum of sixteen tokens.
const countingSlack = 256

/**
 * What has been seen of an answer, as far as money is concerned: whether there was any output, when it began, and the
 * text itself, kept in case the upstream does not say how many tokens it was.
 */
export class Meter {
  readonly #now: () => number
  #startedMs: number
  #answer: KeptText
  #reasoning: KeptText
  #tokensMax: number
  #freshAnswer: string[] = []
  #freshReasoning: string[] = []
  #sealedBytes = 0
  #accepted = false
  #counted = 0
  #firstOutputMs: number | undefined
  #hasHeld = false

  /** No more than `tokensMax` are ever billed, so no more text is kept than it takes to reach that count. */
  constructor(now: () => number, tokensMax: number) {
    this.#now = now
    this.#startedMs = now()
    this.#tokensMax = tokensMax
    this.#answer = new KeptText(tokensMax * charactersPerTokenMax)
    this.#reasoning = new KeptText(tokensMax * charactersPerTokenMax)
  }

  /** Another answer of the upstream within the same request: its text is counted apart. */
  beginRound(tokensMax: number): void {
    this.#tokensMax = tokensMax
    this.#answer = new KeptText(tokensMax * charactersPerTokenMax)
    this.#reasoning = new KeptText(tokensMax * charactersPerTokenMax)
    this.#freshAnswer = []
    this.#freshReasoning = []
    this.#sealedBytes = 0
    this.#counted = 0
    this.#hasHeld = false
  }

  see(events: readonly ChatEvent[]): void {
    for (const event of events) this.seeOne(event)
  }

  /** Output that the client does not get, or not yet, such as a call of one of our tools: it is billed, but delivers nothing. */
  seeHidden(text: string): void {
    if (this.#answer.add(text)) this.#freshAnswer.push(text)
  }

  /** A finished item of reasoning that only the upstream can read: its size is all that is known of the tokens in it. */
  seeSealed(bytes: number): void {
    this.#sealedBytes += Math.max(0, bytes - sealedEnvelopeBytes)
  }

  /** What was hidden is given to the client after all, or would have been, had it not left. */
  noteDelivered(): void {
    this.#firstOutputMs ??= this.#now()
  }

  /** Output that is held back until it is known whether it is part of the answer. A client that leaves meanwhile pays for it. */
  seeHeld(text: string): void {
    this.seeHidden(text)
    this.#hasHeld = true
  }

  /** What is metered now, as a copy that later events do not change: the bill of a client that leaves now. */
  snapshot(): Meter {
    const nowMs = this.#now()
    const copy = new Meter(() => nowMs, this.#tokensMax)
    copy.#startedMs = this.#startedMs
    copy.#answer = this.#answer.copy()
    copy.#reasoning = this.#reasoning.copy()
    copy.#sealedBytes = this.#sealedBytes
    copy.#accepted = this.#accepted
    copy.#counted = this.#counted
    copy.#firstOutputMs = this.#firstOutputMs ?? (this.#hasHeld ? nowMs : undefined)
    return copy
  }

  /** True when anything was written in this round. */
  get roundStarted(): boolean {
    return !this.#answer.isEmpty || !this.#reasoning.isEmpty || this.#sealedBytes > 0
  }

  /** The upstream took the request: from then on it reads the input. */
  get accepted(): boolean {
    return this.#accepted
  }

  /** Of this round's sealed reasoning, without what surrounds it. */
  get sealedBytes(): number {
    return this.#sealedBytes
  }

  /** True from the first content, refusal, reasoning or tool call that came from the upstream. */
  get outputStarted(): boolean {
    return this.#firstOutputMs !== undefined
  }

  get firstTokenMs(): number | undefined {
    return this.#firstOutputMs === undefined ? undefined : Math.round(this.#firstOutputMs - this.#startedMs)
  }

  get totalMs(): number {
    return Math.round(this.#now() - this.#startedMs)
  }

  get answerText(): string {
    return this.#answer.text
  }

  get reasoningText(): string {
    return this.#reasoning.text
  }

  /** More came than can be billed: an upstream that does not mind its limit is not listened to for ever. */
  get overflowed(): boolean {
    return this.#counted > this.#tokensMax + countingSlack
  }

  /** Tells how many tokens the output was counted to be so far. */
  noteCounted(tokens: number): void {
    this.#counted = tokens
  }

  /** The output that came since this was last asked for. */
  takeFresh(): { readonly answer: string; readonly reasoning: string } {
    const fresh = { answer: this.#freshAnswer.join(''), reasoning: this.#freshReasoning.join('') }
    this.#freshAnswer = []
    this.#freshReasoning = []
    return fresh
  }

  seeOne(event: ChatEvent): void {
    switch (event.type) {
      case 'text':
      case 'refusal':
      case 'tool-arguments':
        this.seeHidden(writtenText(event))
        break
      case 'tool-call':
        this.seeHidden(event.name)
        break
      case 'reasoning':
        this.#seeReasoning(writtenText(event))
        break
      case 'accepted':
        this.#accepted = true
        return
      default:
        return
    }
    this.noteDelivered()
  }

  #seeReasoning(text: string): void {
    if (this.#reasoning.add(text)) this.#freshReasoning.push(text)
  }
}

/** The beginning of a text. An upstream that writes without end must not fill our memory. */
class KeptText {
  readonly #charactersMax: number
  #pieces: string[] = []
  #characters = 0

  constructor(charactersMax: number) {
    this.#charactersMax = charactersMax
  }

  get text(): string {
    return this.#pieces.join('')
  }

  get isEmpty(): boolean {
    return this.#pieces.length === 0
  }

  copy(): KeptText {
    const copy = new KeptText(this.#charactersMax)
    copy.#pieces = [...this.#pieces]
    copy.#characters = this.#characters
    return copy
  }

  /** False when there is enough already. */
  add(piece: string): boolean {
    if (this.#characters >= this.#charactersMax) return false
    this.#pieces.push(piece)
    this.#characters += piece.length
    return true
  }
}
