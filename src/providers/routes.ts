import type { UpstreamProtocol, UpstreamTimeouts } from '../config/config.ts'

/** How to reach a provider, and its limits. */
export type ProviderSettings = {
  /** Our name for it. Customers never see it. */
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
  /** One account may have this many of them while there is room, even if its share is smaller. */
  readonly concurrencyPerAccountMin: number
}

/** The provider's charge to us, in atomic USDC per million tokens. */
export type Rates = {
  readonly inputPerMillion: bigint
  /** Input from the provider's prompt cache. */
  readonly cachedInputPerMillion: bigint
  readonly outputPerMillion: bigint
}

/** One provider that serves a model. */
export type Route = {
  readonly provider: string
  /** The provider's name for the model. */
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
  /** By the customer's name for a model, including aliases. No list is empty. */
  readonly routes: ReadonlyMap<string, readonly Route[]>
  /** Timeout of one answer, over all attempts. */
  readonly deadlineMs: number
}
