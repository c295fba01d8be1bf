import type { Meter } from '../billing/meter.ts'
import type { Holds } from '../ledger/holds.ts'
import type { Order } from './admit.ts'
import type { TokenCount, UsageSoFar } from './usage-so-far.ts'

export type CheckpointOptions = {
  readonly holds: Holds
  readonly everyMs: number
  readonly onError: (error: unknown) => void
}

type OpenStream = {
  readonly order: Order
  readonly meter: Meter
  readonly usage: UsageSoFar
  /** Nobody reads it at the moment: a crash charges what was delivered before. */
  readonly isPaused: () => boolean
  written: TokenCount | undefined
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
  watch(order: Order, meter: Meter, usage: UsageSoFar, isPaused: () => boolean): () => void {
    const stream = { order, meter, usage, isPaused, written: undefined }
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
    const { order, meter, usage, written } = stream
    // Until something was delivered a crash charges nothing, so there is nothing to write down.
    if (!meter.outputStarted || stream.isPaused()) return
    const count = await usage.read()
    if (count === undefined || !this.#streams.has(stream) || stream.isPaused()) return
    const { promptTokens, completionTokens } = count
    if (written?.promptTokens === promptTokens && written.completionTokens === completionTokens) return
    stream.written = count
    const { holds } = this.#options
    holds.checkpoint({
      requestId: order.requestId,
      partition: order.hold.payer.partition,
      promptTokens,
      completionTokens,
    })
  }
}
