import type { Usdc } from '../money/usdc.ts'

type OpenRequest = { readonly quote: Usdc; readonly model: string; readonly startedMs: number }

const waitMsMin = 1_000
// Longer than that nobody should wait without looking again. The SDKs ignore 60 s and more.
const waitMsMax = 30_000
const durationMsDefault = 5_000
/** The weight of one request in the typical duration. */
const newest = 0.2
// An answer for each `max_tokens` of 1 fits the cap hundreds of times: enough of them say when there is room.
const estimatedMax = 200

/**
 * The requests that this node is serving, by account, and how long those of a model took lately: what a client that is refused for
 * money in flight is told to wait. Requests of other nodes are unknown here, so that the estimate errs.
 */
export class OpenRequests {
  readonly #ofAccount = new Map<string, Set<OpenRequest>>()
  readonly #durationMs = new Map<string, number>()
  readonly #now: () => number

  /** `now` gives monotonic milliseconds. */
  constructor(now: () => number) {
    this.#now = now
  }

  /** Notes a request whose quote is held, until the result is disposed of. */
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

  /** When requests that hold this much are likely to have ended, in milliseconds from now. */
  roomInMs(accountId: string, amount: bigint): number {
    const open = [...(this.#ofAccount.get(accountId) ?? [])].slice(0, estimatedMax)
    const ends = open
      .map(({ quote, ...request }) => ({ quote, leftMs: this.#leftMs(request) }))
      .sort((one, other) => one.leftMs - other.leftMs)
    let missing = amount
    for (const { quote, leftMs } of ends) {
      missing -= quote
      if (missing <= 0n) return bounded(leftMs)
    }
    return bounded(ends.at(-1)?.leftMs ?? durationMsDefault)
  }

  /** One that has passed the typical duration is a long one: the longer it has run, the longer it is likely to run. */
  #leftMs({ model, startedMs }: Omit<OpenRequest, 'quote'>): number {
    const ageMs = this.#now() - startedMs
    return Math.max((this.#durationMs.get(model) ?? durationMsDefault) - ageMs, ageMs / 2)
  }
}

function bounded(milliseconds: number): number {
  return Math.ceil(Math.min(Math.max(milliseconds, waitMsMin), waitMsMax))
}
