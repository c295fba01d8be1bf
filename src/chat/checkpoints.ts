import type { Meter } from '../billing/meter.ts'
import type { Holds } from '../ledger/holds.ts'
import type { Order } from './admit.ts'

export type CheckpointOptions = {
  readonly holds: Holds
  readonly countTokens: (texts: readonly string[]) => Promise<number>
  readonly everyMs: number
  readonly onError: (error: unknown) => void
}

type OpenStream = {
  readonly order: Order
  readonly meter: Meter
  promptTokens: number | undefined
  completionTokens: number
}

/**
 * Writes down every few seconds how far each open stream has come, so that a crash charges what was delivered and no more.
 * Buffered answers are left out: until their end they have delivered nothing.
 */
export class Checkpoints {
  readonly #options: CheckpointOptions
  readonly #streams = new Set<OpenStream>()
  readonly #timer: NodeJS.Timeout
  #busy = false

  constructor(options: CheckpointOptions) {
    this.#options = options
    this.#timer = setInterval(() => void this.#write(), options.everyMs)
    this.#timer.unref()
  }

  /** Watches a stream until the returned function is called. */
  watch(order: Order, meter: Meter): () => void {
    const stream = { order, meter, promptTokens: undefined, completionTokens: 0 }
    this.#streams.add(stream)
    return () => this.#streams.delete(stream)
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  async #write(): Promise<void> {
    // Counting that takes longer than the pause between two rounds must not pile up.
    if (this.#busy) return
    this.#busy = true
    try {
      await Promise.all([...this.#streams].map((stream) => this.#writeOne(stream)))
    } catch (error) {
      this.#options.onError(error)
    } finally {
      this.#busy = false
    }
  }

  async #writeOne(stream: OpenStream): Promise<void> {
    const { order, meter } = stream
    const fresh = meter.takeFresh()
    if (fresh === '') return
    const { countTokens, holds } = this.#options
    stream.promptTokens ??= await countTokens(order.input.texts)
    // Counted piece by piece: where two pieces meet a token may be counted twice, never more than one a round.
    stream.completionTokens += await countTokens([fresh])
    meter.noteCounted(stream.completionTokens)
    if (!this.#streams.has(stream)) return
    holds.checkpoint({
      requestId: order.requestId,
      partition: order.hold.payer.partition,
      promptTokens: Math.min(stream.promptTokens, order.quote.inputTokensMax),
      completionTokens: Math.min(stream.completionTokens, order.quote.maxTokens),
    })
  }
}
