import type { Meter } from '../billing/meter.ts'
import type { Round, Tab } from '../billing/tab.ts'
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
  readonly tab: Tab
  /** The round that the counts below are of. */
  round: Round | undefined
  promptTokens: number
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
  watch(order: Order, meter: Meter, tab: Tab): () => void {
    const stream = { order, meter, tab, round: undefined, promptTokens: 0, completionTokens: 0 }
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
    const { order, meter, tab } = stream
    const { round, finished } = tab
    // Until something was delivered a crash charges nothing, so there is nothing to write down.
    if (round === undefined || !meter.outputStarted) return
    const fresh = meter.takeFresh()
    if (fresh === '') return
    const { countTokens, holds } = this.#options
    if (stream.round !== round) {
      stream.promptTokens = await countTokens(round.input.texts)
      stream.completionTokens = 0
      stream.round = round
    }
    // Counted piece by piece: where two pieces meet a token may be counted twice, never more than one a round.
    stream.completionTokens += await countTokens([fresh])
    if (tab.round !== round) return
    meter.noteCounted(stream.completionTokens)
    if (!this.#streams.has(stream)) return
    holds.checkpoint({
      requestId: order.requestId,
      partition: order.hold.payer.partition,
      promptTokens: (finished?.promptTokens ?? 0) + Math.min(stream.promptTokens, round.inputTokensMax),
      completionTokens: (finished?.completionTokens ?? 0) + Math.min(stream.completionTokens, round.maxTokens),
    })
  }
}
