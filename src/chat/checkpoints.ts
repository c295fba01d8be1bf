import type { Bill } from '../billing/bill.ts'
import type { Holds } from '../ledger/holds.ts'
import type { AdmittedRequest } from './admit.ts'
import type { Answer } from './answer.ts'
import type { TokenCount, UsageSoFar } from './usage-so-far.ts'

export type CheckpointOptions = {
  readonly holds: Holds
  readonly everyMs: number
  readonly onError: (error: unknown) => void
}

type OpenAnswer = {
  readonly admitted: AdmittedRequest
  readonly bill: Bill
  readonly usage: UsageSoFar
  /** While no client waits for it, its output is not counted. */
  readonly clients: Pick<Answer, 'isAbandoned' | 'isDelivered'>
}

/**
 * Counts open answers every few seconds, so that the bill notices an upstream that ignores its limit. Saves the progress of streams, so
 * that a crash charges exactly what was delivered. Buffered answers deliver nothing before their end and are not saved.
 */
export class Checkpoints {
  readonly #options: CheckpointOptions
  /** Each answer with its last saved count. */
  readonly #answers = new Map<OpenAnswer, TokenCount | undefined>()
  /** Answers that are being counted. A slow count, of an account with much to count, must not hold up the others. */
  readonly #counting = new Set<OpenAnswer>()
  readonly #timer: NodeJS.Timeout

  constructor(options: CheckpointOptions) {
    this.#options = options
    this.#timer = setInterval(() => this.#write(), options.everyMs)
    this.#timer.unref()
  }

  /** Watches an answer until the returned function is called. */
  watch(answer: OpenAnswer): () => void {
    this.#answers.set(answer, undefined)
    return () => this.#answers.delete(answer)
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  #write(): void {
    for (const answer of this.#answers.keys()) {
      // A count that takes longer than the interval must not pile up.
      if (this.#counting.has(answer)) continue
      this.#counting.add(answer)
      this.#writeOne(answer)
        .catch(this.#options.onError)
        .finally(() => this.#counting.delete(answer))
    }
  }

  async #writeOne(answer: OpenAnswer): Promise<void> {
    const { admitted, bill, usage, clients } = answer
    // Before the first delivery a crash charges nothing, so there is nothing to save. A count may include text that is held back.
    const isSaved = () => clients.isDelivered && bill.outputStarted && !bill.isHolding
    if (clients.isAbandoned || !(isSaved() || bill.roundStarted)) return
    const count = await usage.read()
    if (count === undefined || !this.#answers.has(answer) || !isSaved()) return
    const { promptTokens, completionTokens } = count
    const written = this.#answers.get(answer)
    if (written?.promptTokens === promptTokens && written.completionTokens === completionTokens) return
    this.#answers.set(answer, count)
    const { holds } = this.#options
    holds.checkpoint({
      requestId: admitted.requestId,
      partition: admitted.hold.payer.partition,
      promptTokens,
      completionTokens,
    })
  }
}
