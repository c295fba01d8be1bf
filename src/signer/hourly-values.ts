export type HourlyLimits = {
  /** The most for one account in one clock hour. */
  readonly accountMax: bigint
  /** The most for all accounts together. */
  readonly totalMax: bigint
}

const accountsMax = 500_000
const hourMs = 3_600_000

/**
 * Sums what was signed in the current clock hour. Bounds what a compromised caller can get signed before an operator reacts. Kept
 * in memory only: a restarted signer counts from zero.
 */
export class HourlyValues {
  readonly #limits: HourlyLimits
  readonly #accounts = new Map<string, bigint>()
  #hour = 0
  #total = 0n

  constructor(limits: HourlyLimits) {
    this.#limits = limits
  }

  /** The largest single value: a larger one never fits into an hour. */
  get valueMax(): bigint {
    const { accountMax, totalMax } = this.#limits
    return accountMax < totalMax ? accountMax : totalMax
  }

  /** Counts the value and returns true, unless that would exceed a limit. */
  take(account: string, value: bigint, nowMs: number): boolean {
    this.#beginHour(Math.floor(nowMs / hourMs))
    const sum = (this.#accounts.get(account) ?? 0n) + value
    const total = this.#total + value
    if (sum > this.#limits.accountMax || total > this.#limits.totalMax) return false
    if (this.#accounts.size >= accountsMax && !this.#accounts.has(account)) return false
    this.#accounts.set(account, sum)
    this.#total = total
    return true
  }

  #beginHour(hour: number): void {
    if (hour === this.#hour) return
    this.#hour = hour
    this.#total = 0n
    this.#accounts.clear()
  }
}
