import { fromAtomic, parse, type Usdc, zero } from '../money/usdc.ts'

// A cancel before any output is free, though the upstream may have read the input and is paid for it by the operator. People and
// SDK timeouts do that now and then; a program that does it all the time lives on the operator's money. Twenty an hour is more than
// an impatient person makes, and 0.10 USDC is 100,000 tokens of input at 1.00 USDC a million.
export const freeCancelsMax = 20
export const freeCancelCostMax = parse('0.10')
const windowMs = 60 * 60 * 1000
const accountsMax = 10_000

type Window = { readonly startedMs: number; cancels: number; cost: Usdc }

/**
 * How many requests an account may cancel for free, within an hour, after the upstream has accepted them and before any output. The
 * first one past either limit is charged. Kept in memory by each process: a restart gives the allowance anew.
 */
export class CancelAllowance {
  readonly #now: () => number
  readonly #windows = new Map<string, Window>()

  /** `now` are monotonic milliseconds. */
  constructor(now: () => number) {
    this.#now = now
  }

  /** Takes a cancel that would cost so much from the allowance; false when it is used up, and the cancel is to be charged. */
  take(accountId: string, cost: Usdc): boolean {
    const window = this.#windowOf(accountId)
    // What is used so far decides: a single long prompt is not charged because it is long.
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
