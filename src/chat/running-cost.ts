import type { Bill } from '../billing/bill.ts'
import type { ChatEvent } from '../inference/chat-events.ts'
import { min } from '../money/usdc.ts'
import type { UsageSoFar } from './usage-so-far.ts'

const everyMs = 1_000

export type RunningCostParts = {
  readonly usage: UsageSoFar
  readonly bill: Bill
  /** Monotonic milliseconds. */
  readonly now: () => number
  readonly deliver: (events: readonly ChatEvent[]) => unknown
}

/** Sends the cost so far of a stream to its client: with the first output, then at most once a second. An estimate. */
export class RunningCost {
  readonly #parts: RunningCostParts
  #lastMs = Number.NEGATIVE_INFINITY
  #busy = false
  #stopped = false

  constructor(parts: RunningCostParts) {
    this.#parts = parts
  }

  /** Called with every piece of output. */
  tick(): void {
    const now = this.#parts.now()
    if (this.#busy || now - this.#lastMs < everyMs) return
    this.#lastMs = now
    this.#busy = true
    // A failed count is skipped: the charge counts again, and reports its own failure.
    this.#send().catch(() => {})
  }

  /** No cost is sent after the end of the answer. */
  stop(): void {
    this.#stopped = true
  }

  async #send(): Promise<void> {
    const { usage, bill, deliver } = this.#parts
    try {
      const count = await usage.read()
      if (count === undefined || this.#stopped) return
      const { promptTokens, completionTokens } = count
      deliver([{ type: 'cost', cost: min(bill.costOf(count), bill.limit), promptTokens, completionTokens }])
    } finally {
      this.#busy = false
    }
  }
}
