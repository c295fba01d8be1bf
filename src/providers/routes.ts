import type { UpstreamProtocol, UpstreamTimeouts } from '../config/config.ts'

/** How one provider is reached, and how much may be asked of it. */
export type ProviderSettings = {
  /** Our name of it. Customers never see it. */
  readonly id: string
  readonly protocol: UpstreamProtocol
  readonly baseUrl: string
  readonly apiKey: string | undefined
  readonly headers: Readonly<Record<string, string>>
  readonly timeouts: UpstreamTimeouts
  /** An answer whose first output takes longer counts as a failure for the circuit breaker. */
  readonly slowMs: number | undefined
  /** Maximum number of concurrent requests. */
  readonly concurrencyMax: number
}

/** What a provider charges us, in atomic USDC for a million tokens. */
export type Rates = {
  readonly inputPerMillion: bigint
  /** Input that the provider had in its prompt cache. */
  readonly cachedInputPerMillion: bigint
  readonly outputPerMillion: bigint
}

/** One provider that serves a model. */
export type Route = {
  readonly provider: string
  /** What the provider calls the model. */
  readonly model: string
  /** Lower is tried first. */
  readonly priority: number
  /** Its share of the requests among upstreams of the same priority. */
  readonly weight: number
  /** Undefined: not configured. */
  readonly rates: Rates | undefined
}

export type RoutingTable = {
  readonly providers: readonly ProviderSettings[]
  /** By the customer's name of a model, aliases included. None is empty. */
  readonly routes: ReadonlyMap<string, readonly Route[]>
  /** The time for one answer, all attempts together. */
  readonly deadlineMs: number
}
