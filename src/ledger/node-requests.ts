import type { EndCall, ExtensionCall, ToolCallRecord } from './hold-calls.ts'
import type { RequestId } from './request-id.ts'

/** Everything that the ledger needs to end a request, even if it lost what was written while the request was open. */
export type WholeEnd = EndCall & {
  readonly toolCalls: readonly ToolCallRecord[]
  /** The last one that was granted. */
  readonly extension: ExtensionCall | undefined
}

/**
 * This many entries take 11 MB. An outage adds none: only ends that were committed before it and had not reached the standby can be
 * lost.
 */
const endsMax = 20_000

/**
 * The requests that this node serves, and the last ones that it ended. A failover to a standby that lags behind loses commits: ends that
 * were acknowledged are open holds again, under a lease that is alive. Only the node itself knows that it ended them, and with which
 * charge.
 */
export class NodeRequests {
  readonly #serving = new Map<RequestId, { toolCalls: ToolCallRecord[]; extension: ExtensionCall | undefined }>()
  readonly #ends = new Map<RequestId, WholeEnd>()
  /** The same ends in the order in which they came. To find the oldest key of a map costs as much as the rest of a request's bookkeeping. */
  readonly #ring: WholeEnd[] = []
  /** Where the next end replaces the oldest one. */
  #next = 0

  /** Call it before the hold is written: a hold that the database knows is never unknown here while it is served. */
  begin(requestId: RequestId): void {
    this.#serving.set(requestId, { toolCalls: [], extension: undefined })
  }

  addToolCall(call: ToolCallRecord): void {
    this.#serving.get(call.requestId)?.toolCalls.push(call)
  }

  setExtension(call: ExtensionCall): void {
    const request = this.#serving.get(call.requestId)
    if (request !== undefined) request.extension = call
  }

  /** The end, with what is known about its request. */
  wholeEnd(call: EndCall): WholeEnd {
    return { ...call, ...(this.#serving.get(call.requestId) ?? { toolCalls: [], extension: undefined }) }
  }

  /** The end is committed: the request is no longer served, and its end is remembered. */
  ended(end: WholeEnd): void {
    this.forget(end.requestId)
    const oldest = this.#ring[this.#next]
    // Not when it was forgotten or has ended again since.
    if (oldest !== undefined && this.#ends.get(oldest.requestId) === oldest) this.#ends.delete(oldest.requestId)
    this.#ends.set(end.requestId, end)
    this.#ring[this.#next] = end
    this.#next = (this.#next + 1) % endsMax
  }

  /** The request is no longer served, and its end is unknown. */
  forget(requestId: RequestId): void {
    this.#serving.delete(requestId)
    this.#ends.delete(requestId)
  }

  isServing(requestId: RequestId): boolean {
    return this.#serving.has(requestId)
  }

  get serving(): readonly RequestId[] {
    return [...this.#serving.keys()]
  }

  endOf(requestId: RequestId): WholeEnd | undefined {
    return this.#ends.get(requestId)
  }
}
