// Retries of free refusals are new requests (docs/operations/retry.md).

/** Attempts that look the same: one API key, one body, one `x-stainless-retry-count`. */
export type RefusedAttempt = { readonly keyId: string; readonly bodyHash: bigint; readonly retryCount: number }

const keptMs = 60_000
const namesMax = 10_000

/**
 * Counts the attempts of the last minute that were refused for free with the advice to retry. Their retries are new requests: they
 * must not join or replay another request that happens to have the same body.
 */
export class RefusedAttempts {
  readonly #now: () => number
  readonly #refused = new Map<string, { readonly count: number; readonly untilMs: number }>()

  /** `now` returns monotonic milliseconds. */
  constructor(now: () => number) {
    this.#now = now
  }

  add(attempt: RefusedAttempt): void {
    const name = nameOf(attempt)
    const count = this.#countOf(name) + 1
    this.#refused.delete(name)
    this.#refused.set(name, { count, untilMs: this.#now() + keptMs })
    const [oldest] = this.#refused.keys()
    if (this.#refused.size > namesMax && oldest !== undefined) this.#refused.delete(oldest)
  }

  /** True when there was such an attempt. Each of them is retried once. */
  take(attempt: RefusedAttempt): boolean {
    const name = nameOf(attempt)
    const count = this.#countOf(name)
    if (count > 1) this.#refused.set(name, { count: count - 1, untilMs: this.#refused.get(name)!.untilMs })
    else this.#refused.delete(name)
    return count > 0
  }

  #countOf(name: string): number {
    const refused = this.#refused.get(name)
    return refused !== undefined && refused.untilMs > this.#now() ? refused.count : 0
  }
}

function nameOf({ keyId, bodyHash, retryCount }: RefusedAttempt): string {
  return `${keyId} ${bodyHash} ${retryCount}`
}
