import type { Usdc } from '../money/usdc.ts'

type OpenRequest = { readonly quote: Usdc; readonly model: string; readonly startedMs: number }

const waitMsMin = 1_000
// A client should retry at least this often. The SDKs ignore 60 s and more.
const waitMsMax = 30_000
const durationMsDefault = 5_000
/** Weight of the newest request in the moving average. */
const newest = 0.2
// Requests with `max_tokens` of 1 fit under the cap hundreds of times: this many are enough for an estimate.
const estimatedMax = 200

/**
 * The requests that this node is serving, by account, and how long recent requests of each model took. Estimates the `Retry-After`
 * of requests refused for money in flight. Requests on other nodes are unknown here, so this is only an estimate.
 */
export class OpenRequests {
  readonly #ofAccount = new Map<string, Set<OpenRequest>>()
  readonly #durationMs = new Map<string, number>()
  readonly #now: () => number

  /** `now` returns monotonic milliseconds. */
  constructor(now: () => number) {
    this.#now = now
  }

  /** Tracks a request whose quote is held, until the result is disposed. */
  begin(accountId: string, request: { readonly quote: Usdc; readonly model: string }): Disposable {
    const open: OpenRequest = { quote: request.quote, model: request.model, startedMs: this.#now() }
    const account = this.#ofAccount.get(accountId) ?? new Set()
    this.#ofAccount.set(accountId, account.add(open))
    return { [Symbol.dispose]: () => this.#end(accountId, open) }
  }

  #end(accountId: string, open: OpenRequest): void {
    const account = this.#ofAccount.get(accountId)
    account?.delete(open)
    if (account?.size === 0) this.#ofAccount.delete(accountId)
    const tookMs = this.#now() - open.startedMs
    const typicalMs = this.#durationMs.get(open.model) ?? tookMs
    this.#durationMs.set(open.model, typicalMs + newest * (tookMs - typicalMs))
  }

  /** Estimates when requests that hold this much will have ended, in milliseconds from now. */
  roomInMs(accountId: string, amount: bigint): number {
    const open = [...(this.#ofAccount.get(accountId) ?? [])].slice(0, estimatedMax)
    const ends = open
      .map(({ quote, model, startedMs }) => {
        const ageMs = this.#now() - startedMs
        const typicalMs = this.#durationMs.get(model) ?? durationMsDefault
        // A request that exceeds the typical duration is a long one: the longer it has run, the longer it is likely to run.
        return { quote, leftMs: Math.max(typicalMs - ageMs, ageMs / 2) }
      })
      .sort((one, other) => one.leftMs - other.leftMs)
    let missing = amount
    for (const { quote, leftMs } of ends) {
      missing -= quote
      if (missing <= 0n) return bounded(leftMs)
    }
    return bounded(ends.at(-1)?.leftMs ?? durationMsDefault)
  }
}

function bounded(milliseconds: number): number {
  return Math.ceil(Math.min(Math.max(milliseconds, waitMsMin), waitMsMax))
}
