export type HourlyLimits = {
  /** The most for one account in one hour of the clock. */
  readonly accountMax: bigint
  /** The most for all together. */
  readonly totalMax: bigint
}

const accountsMax = 500_000
const hourMs = 3_600_000

/**
 * How much was signed in this hour. It bounds what a caller gone bad can have signed before somebody looks, and is kept in
 * memory alone: a signer that starts anew counts from zero.
 */
export class HourlyValues {
  readonly #limits: HourlyLimits
  readonly #accounts = new Map<string, bigint>()
  #hour = 0
  #total = 0n

  constructor(limits: HourlyLimits) {
    this.#limits = limits
  }

  /** The most that one value can be: a larger one fits into no hour. */
  get valueMax(): bigint {
    const { accountMax, totalMax } = this.#limits
    return accountMax < totalMax ? accountMax : totalMax
  }

  /** Counts the value, unless that would pass a limit. */
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
