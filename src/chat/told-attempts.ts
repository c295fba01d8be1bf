/** Attempts that their clients cannot tell apart: one key, one body, the same count of retries before them. */
export type ToldAttempt = { readonly keyId: string; readonly bodyHash: bigint; readonly retryCount: number }

const keptMs = 60_000
const namesMax = 10_000
const equalMax = 1_000

/**
 * The attempts of the last minute whose clients were told to come back. Nothing of them is held, charged or under way: the retry
 * that follows stands for none of the other requests with its body, which may be under way or answered meanwhile.
 */
export class ToldAttempts {
  readonly #now: () => number
  /** Until when each of them is waited for, the oldest first; and the names too, by their last. */
  readonly #waited = new Map<string, readonly number[]>()

  /** `now` is in monotonic milliseconds. */
  constructor(now: () => number) {
    this.#now = now
  }

  add(attempt: ToldAttempt): void {
    const name = nameOf(attempt)
    const waited = [...this.#waitedFor(name), this.#now() + keptMs].slice(-equalMax)
    this.#waited.delete(name)
    this.#waited.set(name, waited)
    if (this.#waited.size > namesMax) this.#forgetOldest()
  }

  /** Whether there was such an attempt. Each is followed by one retry. */
  take(attempt: ToldAttempt): boolean {
    const name = nameOf(attempt)
    const [first, ...others] = this.#waitedFor(name)
    if (others.length > 0) this.#waited.set(name, others)
    else this.#waited.delete(name)
    return first !== undefined
  }

  #waitedFor(name: string): readonly number[] {
    const now = this.#now()
    return (this.#waited.get(name) ?? []).filter((untilMs) => untilMs > now)
  }

  #forgetOldest(): void {
    const [oldest] = this.#waited.keys()
    if (oldest !== undefined) this.#waited.delete(oldest)
  }
}

function nameOf({ keyId, bodyHash, retryCount }: ToldAttempt): string {
  return `${keyId} ${bodyHash} ${retryCount}`
}
