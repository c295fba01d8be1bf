import type { Tab } from '../billing/tab.ts'
import type { ChatEvent } from '../inference/chat-events.ts'
import { min } from '../money/usdc.ts'
import type { UsageSoFar } from './usage-so-far.ts'

const everyMs = 1_000

export type RunningCostParts = {
  readonly usage: UsageSoFar
  readonly tab: Tab
  /** Monotonic milliseconds. */
  readonly now: () => number
  readonly deliver: (events: readonly ChatEvent[]) => unknown
}

/** Tells the client of a stream what it has cost so far: with the first output, then at most once a second. An estimate, as it is counted. */
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
    // A count that fails is not told; the charge is counted anew, and says so when it fails.
    this.#tell().catch(() => {})
  }

  /** Nothing is told behind the end of the answer. */
  stop(): void {
    this.#stopped = true
  }

  async #tell(): Promise<void> {
    const { usage, tab, deliver } = this.#parts
    try {
      const count = await usage.read()
      if (count === undefined || this.#stopped) return
      const { promptTokens, completionTokens } = count
      deliver([{ type: 'cost', cost: min(tab.costOf(count), tab.limit), promptTokens, completionTokens }])
    } finally {
      this.#busy = false
    }
  }
}
