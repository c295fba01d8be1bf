import { isDeepStrictEqual } from 'node:util'
import type { UpstreamProtocol } from '../config/config.ts'
import type { ServiceError } from '../errors.ts'
import { Breaker, type BreakerState } from './breaker.ts'
import { chatCompletions } from './chat-completions.ts'
import type { Protocol } from './protocol.ts'
import { responses } from './responses.ts'
import type { ProviderSettings } from './routes.ts'
import { createUpstream, type Upstream } from './upstream.ts'
import { ModelOverloadedError, UpstreamError } from './upstream-errors.ts'

const protocols: Readonly<Record<UpstreamProtocol, Protocol>> = { responses, 'chat-completions': chatCompletions }

export type Clock = {
  /** Monotonic milliseconds. */
  readonly now: () => number
  /** Calls the function once after this time. Returns a cancel function. Must not keep the process alive. */
  readonly schedule: (milliseconds: number, run: () => void) => () => void
}

export type ProviderHealth = {
  readonly provider: string
  readonly state: BreakerState
  readonly requestsUnderWay: number
  readonly concurrencyMax: number
  /** Models that this provider currently does not serve, by its own names. */
  readonly modelsOut: readonly string[]
  /** Moving average of the time to the response headers; undefined before the first answer. */
  readonly firstByteMs: number | undefined
  /** Answers and failures since the provider was configured. */
  readonly succeeded: number
  readonly failed: number
  /** `isLatest`: no answer succeeded since. */
  readonly lastFailure:
    | { readonly code: string; readonly message: string; readonly agoMs: number; readonly isLatest: boolean }
    | undefined
}

// The weight of one answer: a change of speed shows after a few answers, a single slow answer does not.
const newestShare = 0.2

/** One provider: its connections, and its health as its answers show it. */
export class Provider {
  readonly settings: ProviderSettings
  readonly upstream: Upstream
  readonly #clock: Clock
  readonly #breaker: Breaker
  /** A rate limit or an unknown model says nothing about the provider's other models. */
  readonly #models = new Map<string, Breaker>()
  #cancelProbe: (() => void) | undefined
  #firstByteMs: number | undefined
  #succeeded = 0
  #failed = 0
  #lastFailure: { readonly code: string; readonly message: string; readonly atMs: number } | undefined
  #lastFailed = false

  constructor(settings: ProviderSettings, clock: Clock) {
    this.settings = settings
    this.#clock = clock
    this.upstream = createUpstream({
      id: settings.id,
      protocol: protocols[settings.protocol],
      baseUrl: settings.baseUrl,
      apiKey: settings.apiKey,
      headers: settings.headers,
      timeouts: settings.timeouts,
      connectionsMax: settings.concurrencyMax,
      connectionsPerAccountMin: settings.concurrencyPerAccountMin,
    })
    this.#breaker = new Breaker({ now: clock.now, isProbed: true, onOpen: (openMs) => this.#probeAfter(openMs) })
  }

  get sealsReasoning(): boolean {
    return protocols[this.settings.protocol].sealsReasoning
  }

  hasSettings(settings: ProviderSettings): boolean {
    return isDeepStrictEqual(settings, this.settings)
  }

  admits(model: string, account: string): boolean {
    return this.#breaker.admits(account) && this.#models.get(model)?.admits(account) !== false
  }

  begin(model: string): void {
    this.#breaker.begin()
    this.#models.get(model)?.begin()
  }

  /** There is no result: the client disconnected, or the customer's own request was refused. */
  released(model: string): void {
    this.#breaker.released()
    this.#models.get(model)?.released()
  }

  /** Response headers arrived after this time. */
  answered(ms: number): void {
    this.#firstByteMs =
      this.#firstByteMs === undefined ? ms : this.#firstByteMs + newestShare * (ms - this.#firstByteMs)
  }

  succeeded(model: string, account: string): void {
    this.#succeeded += 1
    this.#lastFailed = false
    this.#breaker.succeeded(account)
    this.#models.get(model)?.succeeded(account)
  }

  failed(model: string, account: string, error: ServiceError): void {
    this.#failed += 1
    this.#lastFailed = true
    this.#lastFailure = { code: error.code, message: describe(error), atMs: this.#clock.now() }
    if (!isAboutModel(error)) {
      this.#breaker.failed(account)
      return
    }
    // The server responds.
    this.#breaker.succeeded(account)
    const breaker = this.#breakerOf(model)
    if (error instanceof ModelOverloadedError) breaker.open(error.retryAfterMs ?? 0)
    else breaker.failed(account)
  }

  get health(): ProviderHealth {
    const { lastFailure, now } = { lastFailure: this.#lastFailure, now: this.#clock.now() }
    return {
      provider: this.settings.id,
      state: this.#breaker.state,
      requestsUnderWay: this.upstream.requestsUnderWay,
      concurrencyMax: this.settings.concurrencyMax,
      modelsOut: [...this.#models].filter(([, breaker]) => breaker.state === 'open').map(([model]) => model),
      firstByteMs: this.#firstByteMs === undefined ? undefined : Math.round(this.#firstByteMs),
      succeeded: this.#succeeded,
      failed: this.#failed,
      lastFailure: lastFailure && {
        code: lastFailure.code,
        message: lastFailure.message,
        agoMs: Math.round(now - lastFailure.atMs),
        isLatest: this.#lastFailed,
      },
    }
  }

  /** Accepts no more requests. Requests in flight continue. */
  retire(): Promise<void> {
    this.#cancelProbe?.()
    return this.upstream.retire()
  }

  close(): Promise<void> {
    this.#cancelProbe?.()
    return this.upstream.close()
  }

  #breakerOf(model: string): Breaker {
    const known = this.#models.get(model)
    if (known !== undefined) return known
    const breaker = new Breaker({ now: this.#clock.now, isProbed: false })
    this.#models.set(model, breaker)
    return breaker
  }

  #probeAfter(openMs: number): void {
    this.#cancelProbe?.()
    this.#cancelProbe = this.#clock.schedule(openMs, () => {
      this.upstream.probe().then(
        () => this.#breaker.probed(true),
        () => this.#breaker.probed(false),
      )
    })
  }
}

/** A rate limit, or a request that the provider does not support for this model. */
function isAboutModel(error: ServiceError): boolean {
  if (error instanceof ModelOverloadedError) return true
  const status = error instanceof UpstreamError ? error.upstreamStatus : undefined
  return status !== undefined && [400, 404, 413, 422].includes(status)
}

function describe(error: ServiceError): string {
  const status = 'upstreamStatus' in error && error.upstreamStatus !== undefined ? ` (${error.upstreamStatus})` : ''
  const cause = error.cause instanceof Error ? `: ${error.cause.message}` : ''
  return `${error.message.replace(/\.$/, '')}${status}${cause}`
}
