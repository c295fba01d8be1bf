import type { Bill } from '../billing/bill.ts'
import type { ChatEvent } from '../inference/chat-events.ts'
import { min, type Usdc } from '../money/usdc.ts'
import type { TokenCount, UsageSoFar } from './usage-so-far.ts'

const everyMs = 1_000

export type RunningCostParts = {
  readonly usage: Pick<UsageSoFar, 'read'>
  readonly bill: Pick<Bill, 'costOf' | 'limit'>
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
  #isSent = false

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

  /** No count is sent after the end of the answer. */
  stop(): void {
    this.#stopped = true
  }

  /** The charge, for an answer that ended before its first count: every answer has one cost at least. */
  sendCharge(charged: Usdc, usage: TokenCount): void {
    if (!this.#isSent) this.#deliver(charged, usage)
  }

  async #send(): Promise<void> {
    const { usage, bill } = this.#parts
    try {
      const count = await usage.read()
      if (count === undefined || this.#stopped) return
      this.#deliver(min(bill.costOf(count), bill.limit), count)
    } finally {
      this.#busy = false
    }
  }

  #deliver(cost: Usdc, { promptTokens, completionTokens }: TokenCount): void {
    this.#isSent = true
    this.#parts.deliver([{ type: 'cost', cost, promptTokens, completionTokens }])
  }
}
