import type { Bill } from '../billing/bill.ts'
import type { Holds } from '../ledger/holds.ts'
import type { AdmittedRequest } from './admit.ts'
import type { TokenCount, UsageSoFar } from './usage-so-far.ts'

export type CheckpointOptions = {
  readonly holds: Holds
  readonly everyMs: number
  readonly onError: (error: unknown) => void
}

type OpenStream = {
  readonly admitted: AdmittedRequest
  readonly bill: Bill
  readonly usage: UsageSoFar
  /** No client reads the stream now: a crash charges only what was delivered before. */
  readonly isPaused: () => boolean
}

/**
 * Saves the progress of open streams every few seconds, so that a crash charges exactly what was delivered. Buffered answers are
 * left out: they deliver nothing before their end.
 */
export class Checkpoints {
  readonly #options: CheckpointOptions
  /** Each stream with its last saved count. */
  readonly #streams = new Map<OpenStream, TokenCount | undefined>()
  readonly #timer: NodeJS.Timeout
  #busy = false

  constructor(options: CheckpointOptions) {
    this.#options = options
    this.#timer = setInterval(() => void this.#write(), options.everyMs)
    this.#timer.unref()
  }

  /** Watches a stream until the returned function is called. */
  watch(stream: OpenStream): () => void {
    this.#streams.set(stream, undefined)
    return () => this.#streams.delete(stream)
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  async #write(): Promise<void> {
    // A count that takes longer than the interval must not pile up.
    if (this.#busy) return
    this.#busy = true
    try {
      await Promise.all([...this.#streams.keys()].map((stream) => this.#writeOne(stream)))
    } catch (error) {
      this.#options.onError(error)
    } finally {
      this.#busy = false
    }
  }

  async #writeOne(stream: OpenStream): Promise<void> {
    const { admitted, bill, usage } = stream
    // Before the first delivery a crash charges nothing, so there is nothing to save.
    if (!bill.outputStarted || stream.isPaused()) return
    const count = await usage.read()
    if (count === undefined || !this.#streams.has(stream) || stream.isPaused()) return
    const { promptTokens, completionTokens } = count
    const written = this.#streams.get(stream)
    if (written?.promptTokens === promptTokens && written.completionTokens === completionTokens) return
    this.#streams.set(stream, count)
    const { holds } = this.#options
    holds.checkpoint({
      requestId: admitted.requestId,
      partition: admitted.hold.payer.partition,
      promptTokens,
      completionTokens,
    })
  }
}
