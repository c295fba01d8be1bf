import { fromAtomic, parse, type Usdc, zero } from '../money/usdc.ts'

// A cancel before any output is free, although the upstream may charge the operator for the input. People and SDK timeouts do
// that occasionally; a program that always does it costs the operator money. Twenty an hour is more than an impatient person makes,
// and 0.10 USDC is 100,000 tokens of input at 1.00 USDC a million.
export const freeCancelsMax = 20
export const freeCancelCostMax = parse('0.10')
const windowMs = 60 * 60 * 1000
const accountsMax = 10_000

type Window = { readonly startedMs: number; cancels: number; cost: Usdc }

/**
 * How many requests an account may cancel for free per hour, after the upstream has accepted them and before any output. The first
 * cancel beyond either limit is charged. Kept in memory per process: a restart resets it.
 */
export class CancelAllowance {
  readonly #now: () => number
  readonly #windows = new Map<string, Window>()

  /** `now` returns monotonic milliseconds. */
  constructor(now: () => number) {
    this.#now = now
  }

  /** Uses the allowance for a cancel of this cost. False when it is used up: charge the cancel. */
  take(accountId: string, cost: Usdc): boolean {
    const window = this.#windowOf(accountId)
    // Only earlier cancels count against the cost limit: one long prompt alone is never charged.
    if (window.cancels >= freeCancelsMax || window.cost >= freeCancelCostMax) return false
    window.cancels += 1
    window.cost = fromAtomic(window.cost + cost)
    return true
  }

  #windowOf(accountId: string): Window {
    const known = this.#windows.get(accountId)
    const now = this.#now()
    if (known !== undefined && now - known.startedMs < windowMs) return known
    this.#windows.delete(accountId)
    const [oldest] = this.#windows.keys()
    if (this.#windows.size >= accountsMax) this.#windows.delete(oldest!)
    const window = { startedMs: now, cancels: 0, cost: zero }
    this.#windows.set(accountId, window)
    return window
  }
}
