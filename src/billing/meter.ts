import type { ChatEvent } from '../inference/responses-events.ts'

/**
 * What has been seen of an answer, as far as money is concerned: whether there was any output, when it began, and the
 * text itself, kept in case the upstream does not say how many tokens it was.
 */
export class Meter {
  readonly #now: () => number
  readonly #startedMs: number
  readonly #answer: string[] = []
  readonly #reasoning: string[] = []
  #firstOutputMs: number | undefined

  constructor(now: () => number) {
    this.#now = now
    this.#startedMs = now()
  }

  see(events: readonly ChatEvent[]): void {
    for (const event of events) this.#seeOne(event)
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
    return this.#answer.join('')
  }

  get reasoningText(): string {
    return this.#reasoning.join('')
  }

  #seeOne(event: ChatEvent): void {
    switch (event.type) {
      case 'text':
      case 'refusal':
      case 'tool-arguments':
        this.#answer.push(event.text)
        break
      case 'tool-call':
        this.#answer.push(event.name)
        break
      case 'reasoning':
        this.#reasoning.push(event.text)
        break
      default:
        return
    }
    this.#firstOutputMs ??= this.#now()
  }
}
