import type { ServiceError } from '../errors.ts'
import { type ChatEvent, isOutput } from '../inference/chat-events.ts'
import { type ModelRequest, textsOf } from './model-request.ts'
import { type Clock, Provider, type ProviderHealth } from './provider.ts'
import { orderByKey } from './rendezvous.ts'
import type { Route, RoutingTable } from './routes.ts'
import type { Asker } from './upstream.ts'
import type { AnswerSink, UpstreamCall, UpstreamEnd } from './upstream-call.ts'
import { failureError, isCustomersFault, ModelOverloadedError, UpstreamTimeoutError } from './upstream-errors.ts'

/** One request to any provider of the model. */
export type RoutedRequest = {
  /** The customer's name for the model. */
  readonly model: string
  readonly request: ModelRequest
  /** Whose share of a provider's places it uses. */
  readonly account: string
  /** `onAccepted` may come again, from another provider. `onRefused`: no provider accepts the request, or the last one failed. */
  readonly sink: AnswerSink
  /** Called when the request is written to a provider's connection: from then on it may cost the operator money. */
  readonly onSent?: (provider: SentTo) => void
  /** Called for each provider that is tried. */
  readonly onAttempt: (provider: string) => AttemptWatch
}

/** The provider that has a request. */
type SentTo = { readonly id: string; readonly sealsReasoning: boolean }

/** Observes one attempt, for traces and metrics. */
export type AttemptWatch = {
  readonly headers: Readonly<Record<string, string>> | undefined
  /** The attempt failed: another one follows, or the request fails. Not called for a successful attempt. */
  failed(): void
}

export type RouterOptions = {
  readonly table: RoutingTable
  readonly clock: Clock
  /** For the operator's log. */
  readonly onFailure: (route: Route, error: ServiceError) => void
}

/** Selects the provider of each request and fails over to the next one before the first output. */
export class Router {
  readonly #parts: AnswerParts
  #table: RoutingTable
  #providers = new Map<string, Provider>()

  constructor({ table, clock, onFailure }: RouterOptions) {
    // Looked up for each attempt: a reload may have replaced a provider since the request began.
    this.#parts = { providerOf: (id) => this.#providers.get(id), clock, onFailure }
    this.#table = table
    this.use(table)
  }

  /**
   * Replaces the routes. Providers with unchanged settings keep their connections and their health. Requests in flight stay with their
   * provider.
   */
  use(table: RoutingTable): void {
    const before = this.#providers
    const next = new Map<string, Provider>()
    for (const settings of table.providers) {
      const known = before.get(settings.id)
      next.set(settings.id, known?.hasSettings(settings) ? known : new Provider(settings, this.#parts.clock))
    }
    this.#providers = next
    this.#table = table
    for (const [id, provider] of before) if (next.get(id) !== provider) void provider.retire().catch(() => {})
  }

  get health(): readonly ProviderHealth[] {
    return [...this.#providers.values()].map(({ health }) => health)
  }

  /** The error of a first round that would be refused now, because of the concurrency limits of the model's providers. */
  refusal(model: string, account: string): ServiceError | undefined {
    const asker = { account, isFurtherRound: false }
    let refusal: ServiceError | undefined
    for (const { provider } of this.#table.routes.get(model) ?? []) {
      const found = this.#providers.get(provider)?.upstream.refusal(asker)
      if (found === undefined) return undefined
      refusal ??= found
    }
    return refusal
  }

  /** Asks one provider after another until one answers. The sink may be called before this returns. */
  ask(question: RoutedRequest): RoutedAnswer {
    const { routes, deadlineMs } = this.#table
    const candidates = candidatesOf(routes.get(question.model) ?? [], question.request)
    return new RoutedAnswer(question, candidates, deadlineMs, this.#parts)
  }

  async close(): Promise<void> {
    await Promise.all([...this.#providers.values()].map((provider) => provider.close()))
  }
}

/** Later rounds go to the provider of the previous round: it has the prompt in its cache and can read its own items. */
function candidatesOf(routes: readonly Route[], { promptCacheKey, turns }: ModelRequest): readonly Route[] {
  if (routes.length < 2) return routes
  const last = turns.at(-1)?.provider
  const ordered = orderByKey(routes, promptCacheKey)
  const sticky = ordered.find(({ provider }) => provider === last)
  return sticky === undefined ? ordered : [sticky, ...ordered.filter((route) => route !== sticky)]
}

type AnswerParts = {
  readonly providerOf: (id: string) => Provider | undefined
  readonly clock: Clock
  readonly onFailure: RouterOptions['onFailure']
}

/**
 * The answer to one request. Events are buffered until the first output: if the provider fails before that, the next one is tried, and
 * the sink does not notice. The event `accepted` is passed on immediately, so that headers can be sent; it may come again.
 */
export class RoutedAnswer implements AnswerSink {
  /** The provider that answers. It can change until the first output. */
  route!: Route
  readonly #question: RoutedRequest
  readonly #parts: AnswerParts
  readonly #deadlineMs: number
  /** Not tried yet, best first. */
  #left: readonly Route[]
  #provider!: Provider
  #watch!: AttemptWatch
  #call: UpstreamCall | undefined
  #startedMs = 0
  #isStopped = false
  /** The first output has been passed on. */
  #isCommitted = false
  /** Without another candidate there is no failover, so nothing is buffered. */
  #isDirect: boolean | undefined
  #slow: boolean | undefined
  readonly #asker: Asker
  /** Why a provider was skipped: it is full, or the account uses its share. */
  #refusal: ServiceError | undefined
  readonly #kept: ChatEvent[] = []

  constructor(question: RoutedRequest, routes: readonly Route[], totalMsMax: number, parts: AnswerParts) {
    this.#question = question
    this.#parts = parts
    this.#deadlineMs = parts.clock.now() + totalMsMax
    this.#left = routes
    this.#asker = { account: question.account, isFurtherRound: question.request.turns.length > 0 }
    this.#next(undefined)
  }

  /** The sink gets nothing more, and the provider's work ends. */
  stop(): void {
    this.#isStopped = true
    this.#call?.stop()
  }

  onAccepted(): void {
    this.#provider.answered(this.#parts.clock.now() - this.#startedMs)
    this.#isDirect ??= this.#left.length === 0
    this.#question.sink.onAccepted()
  }

  onEvents(events: readonly ChatEvent[]): Promise<void> | undefined {
    const { sink } = this.#question
    if (this.#isDirect || this.#isCommitted) return sink.onEvents(events)
    const last = events.at(-1)
    const hasOutput = events.some(isOutput)
    if (!hasOutput && last?.type === 'failed' && this.#mayFailOver(failureError(last))) {
      this.#watch.failed()
      this.#kept.length = 0
      this.#slow = undefined
      this.#next(undefined)
      return undefined
    }
    if (hasOutput || this.#left.length === 0 || last?.type === 'failed' || last?.type === 'finish') {
      return sink.onEvents(this.#commit(events))
    }
    this.#kept.push(...events.filter(({ type }) => type !== 'accepted'))
    return events.some(({ type }) => type === 'accepted') ? sink.onEvents([{ type: 'accepted' }]) : undefined
  }

  /** A provider did not accept the request. */
  onRefused(error: ServiceError): void {
    this.#watch.failed()
    if (this.#mayFailOver(error)) this.#next(error)
    else this.#question.sink.onRefused(error)
  }

  /** Tries the next provider. `failure` is the last one's. */
  #next(failure: ServiceError | undefined): void {
    if (this.#isStopped) return
    if (!this.#choose()) {
      this.#question.sink.onRefused(failure ?? this.#refusal ?? new ModelOverloadedError())
      return
    }
    const { route } = this
    const provider = this.#provider
    const onEnd = (end: UpstreamEnd) => this.#ended(provider, route, end)
    try {
      this.#call = this.#ask(provider, route, onEnd)
    } catch (error) {
      // It was not sent.
      const unsent = error as ServiceError
      onEnd({ type: 'failed', error: unsent })
      this.onRefused(unsent)
    }
  }

  /** Selects the next provider that is healthy and has capacity. If there is none, tries an unhealthy one: it may have recovered. */
  #choose(): boolean {
    let chosen: Route | undefined
    for (const route of this.#left) {
      const provider = this.#parts.providerOf(route.provider)
      if (provider === undefined) continue
      const refusal = provider.upstream.refusal(this.#asker)
      this.#refusal ??= refusal
      if (refusal !== undefined) continue
      // A further round waits for a connection only where no other provider has one.
      const isReady = provider.admits(route.model, this.#asker.account) && !provider.upstream.isFull
      if (chosen !== undefined && !isReady) continue
      chosen = route
      this.#provider = provider
      if (isReady) break
    }
    if (chosen === undefined) return false
    this.route = chosen
    // Never tries a provider twice, even if it serves the model under two names.
    this.#left = this.#left.filter(({ provider }) => provider !== chosen.provider)
    return true
  }

  #ask(provider: Provider, route: Route, onEnd: (end: UpstreamEnd) => void): UpstreamCall {
    const { request, onAttempt, onSent } = this.#question
    this.#startedMs = this.#parts.clock.now()
    this.#watch = onAttempt(route.provider)
    provider.begin(route.model)
    return provider.upstream.ask(request, route.model, this, {
      asker: this.#asker,
      headers: this.#watch.headers,
      // Customers know the model by our name.
      hidden: route.model === this.#question.model ? [] : [route.model],
      totalMsMax: Math.max(1, this.#deadlineMs - this.#startedMs),
      // If another provider is available it is tried immediately, unless a kept connection was merely stale.
      repeats: this.#left.length === 0 ? 'unanswered' : 'stale',
      ...(onSent && { onSent: () => onSent({ id: provider.settings.id, sealsReasoning: provider.sealsReasoning }) }),
      onEnd,
    })
  }

  #ended(provider: Provider, route: Route, end: UpstreamEnd): void {
    if (end.type === 'left') provider.released(route.model)
    else if (end.type === 'finished' || isCustomersFault(end.error)) {
      if (!this.#isSlow()) provider.succeeded(route.model, this.#asker.account)
    } else {
      provider.failed(route.model, this.#asker.account, end.error)
      this.#parts.onFailure(route, end.error)
    }
  }

  #mayFailOver(failure: ServiceError): boolean {
    const isInTime = this.#parts.clock.now() < this.#deadlineMs
    return this.#left.length > 0 && isInTime && !this.#isStopped && !isCustomersFault(failure)
  }

  /** Whether the first output took too long. Determined, and reported to the provider, when it arrives. */
  #isSlow(): boolean {
    if (this.#slow !== undefined || this.#isCommitted || this.#isDirect) return this.#slow ?? false
    const { slowMs } = this.#provider.settings
    const isLate = slowMs !== undefined && this.#parts.clock.now() - this.#startedMs > slowMs
    this.#slow = isLate && !takesLong(this.#question.request)
    if (this.#slow)
      // The answer came, but later than `slow_ms`. Customers never see this error.
      this.#provider.failed(this.route.model, this.#asker.account, new UpstreamTimeoutError())
    return this.#slow
  }

  #commit(events: readonly ChatEvent[]): readonly ChatEvent[] {
    if (!this.#isSlow() && events.some(isOutput)) this.#provider.succeeded(this.route.model, this.#asker.account)
    this.#isCommitted = true
    return this.#kept.length === 0 ? events : [...this.#kept, ...events]
  }
}

const longInputCharacters = 100_000

/** Whether the first output comes late at any provider. */
function takesLong({ reasoningEffort, instructions, messages, turns }: ModelRequest): boolean {
  const results = turns.flatMap((turn) => turn.results.map(({ output }) => output))
  const characters = [instructions, ...messages.flatMap(textsOf), ...results].reduce(
    (sum, { length }) => sum + length,
    0,
  )
  return reasoningEffort === 'high' || reasoningEffort === 'xhigh' || characters > longInputCharacters
}
