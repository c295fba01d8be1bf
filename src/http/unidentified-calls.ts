import type { ServiceError } from '../errors.ts'
import type { Visitor } from './visitor.ts'

export type UnidentifiedCall = { readonly at: Date; readonly code: string; readonly message: string }

type Listener = (call: UnidentifiedCall) => void
type Place = Pick<Visitor, 'network' | 'isLocal' | 'header'>

export type UnidentifiedCallsOptions = {
  readonly trustProxy: boolean
  /** Milliseconds of a clock that never jumps; its zero is not 1970, so it dates nothing. */
  readonly now: () => number
}

/** At most one report per network in this time: a program that loops with a wrong key must not flood open dashboards. */
const reportEveryMs = 1_000

/**
 * Completions that were refused because of their API key. They belong to no account, so no request log shows them, but a person who tries
 * a first request needs to see them. They are reported to dashboards that are open on this node from the caller's network, and are not
 * stored. A report never contains any part of the key.
 */
export class UnidentifiedCalls {
  readonly #options: UnidentifiedCallsOptions
  readonly #ofNetwork = new Map<string, { readonly listeners: Set<Listener>; reportedMs: number }>()

  constructor(options: UnidentifiedCallsOptions) {
    this.#options = options
  }

  /** Returns a function that ends the watch. */
  watch(visitor: Place, listener: Listener): () => void {
    const place = this.#placeOf(visitor)
    if (place === undefined) return () => {}
    const known = this.#ofNetwork.get(place) ?? { listeners: new Set<Listener>(), reportedMs: Number.NEGATIVE_INFINITY }
    this.#ofNetwork.set(place, known)
    known.listeners.add(listener)
    return () => {
      known.listeners.delete(listener)
      if (known.listeners.size === 0 && this.#ofNetwork.get(place) === known) this.#ofNetwork.delete(place)
    }
  }

  report(visitor: Place, { code, message }: Pick<ServiceError, 'code' | 'message'>): void {
    const place = this.#placeOf(visitor)
    const known = place === undefined ? undefined : this.#ofNetwork.get(place)
    const nowMs = this.#options.now()
    if (known === undefined || nowMs - known.reportedMs < reportEveryMs) return
    known.reportedMs = nowMs
    for (const listener of known.listeners) listener({ at: new Date(), code, message })
  }

  /** Undefined behind an untrusted proxy: its clients share one address and would see each other's calls. */
  #placeOf({ network, isLocal, header }: Place): string | undefined {
    if (!this.#options.trustProxy && header('x-forwarded-for') !== undefined) return undefined
    return isLocal ? 'local' : network
  }
}
