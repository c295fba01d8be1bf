import type { Log } from '../process/log.ts'
import type { SpanExporter } from './otlp-exporter.ts'
import { Outcomes } from './outcomes.ts'
import type { EndFacts, RefusalFacts } from './request-facts.ts'
import { RequestWatch } from './request-watch.ts'
import { type ServiceMetrics, upstreamErrorCodes } from './service-metrics.ts'
import { spansOf } from './spans.ts'
import { continueTrace } from './trace-context.ts'

export type ObserverOptions = {
  readonly metrics: ServiceMetrics
  readonly log: Pick<Log, 'info'>
  /** Undefined when tracing is off. */
  readonly exporter: SpanExporter | undefined
  /** Monotonic milliseconds. */
  readonly now: () => number
}

const upstreamCodes: ReadonlySet<string> = new Set(upstreamErrorCodes)
const noModel = 'none'

/** Counts, logs and traces requests. It only records; it decides nothing. */
export class Observer {
  /** Recent outcomes of model and search calls in this process. */
  readonly model = new Outcomes()
  readonly search = new Outcomes()
  readonly metrics: ServiceMetrics
  readonly #log: Pick<Log, 'info'>
  readonly #exporter: SpanExporter | undefined
  readonly #now: () => number

  constructor({ metrics, log, exporter, now }: ObserverOptions) {
    this.metrics = metrics
    this.#log = log
    this.#exporter = exporter
    this.#now = now
  }

  /** Call when a request arrives. `traceparent` is the client's header. */
  watch(traceparent: string | string[] | undefined): RequestWatch {
    const caller = typeof traceparent === 'string' ? traceparent : undefined
    return new RequestWatch(this.#now, this.#exporter === undefined ? undefined : continueTrace(caller))
  }

  /** For a request that was refused before any money was held. */
  refused(watch: RequestWatch, { requestId, accountId, keyId, status, code }: RefusalFacts): void {
    this.metrics.requests.add(1, noModel, 'refused', code, 'false')
    for (const { name, outcome } of watch.phases) if (name === 'hold') this.metrics.holds.add(1, outcome ?? 'error')
    const ms = Math.round(watch.elapsedMs)
    this.#log.info(
      { request_id: requestId, account_id: accountId, key_id: keyId, status: 'refused', http_status: status, code, ms },
      'request',
    )
  }

  /** For a retry that got the recorded answer of an earlier attempt. */
  replayed(watch: RequestWatch, requestId: string, model: string): void {
    this.metrics.replays.add(1)
    const ms = Math.round(watch.elapsedMs)
    this.#log.info({ request_id: requestId, trace_id: watch.trace?.traceId, status: 'replayed', model, ms }, 'request')
  }

  /** The ledger did not answer in time. The outcome of the request is not known yet. */
  lost(watch: RequestWatch, requestId: string, model: string, stream: boolean): void {
    this.metrics.requests.add(1, model, 'failed', 'ledger_unavailable', String(stream))
    const ms = Math.round(watch.elapsedMs)
    this.#log.info({ request_id: requestId, trace_id: watch.trace?.traceId, status: 'unknown', model, ms }, 'request')
  }

  /** Call after the ledger has recorded the end of the request. */
  ended(watch: RequestWatch, facts: EndFacts): void {
    this.#count(watch, facts)
    const { usage } = facts
    this.#log.info(
      {
        request_id: facts.requestId,
        trace_id: watch.trace?.traceId,
        account_id: facts.accountId,
        key_id: facts.keyId,
        model: facts.model,
        status: facts.status,
        stream: facts.stream,
        code: facts.errorCode,
        ms: Math.round(watch.elapsedMs),
        first_token_ms: facts.firstTokenMs,
        input_tokens: usage?.promptTokens,
        output_tokens: usage?.completionTokens,
        quote: facts.quote.toString(),
        held: facts.held.toString(),
        charged: facts.charged.toString(),
        searches: facts.searchCalls,
        fetches: facts.fetchCalls,
        provider: facts.upstream?.provider,
        attempts: facts.upstream?.attempts,
        upstream_cost: facts.upstream?.cost?.toString(),
      },
      'request',
    )
    if (watch.trace !== undefined) this.#exporter?.export(spansOf(watch, facts))
  }

  #count(watch: RequestWatch, facts: EndFacts): void {
    const { metrics } = this
    const { model, status, usage, errorCode } = facts
    metrics.requests.add(1, model, status, errorCode ?? '', String(facts.stream))
    metrics.requestSeconds.observe(watch.elapsedMs / 1000, model, String(facts.stream))
    metrics.ends.add(1, status, String(facts.voided))
    if (facts.firstTokenMs !== undefined) metrics.firstTokenSeconds.observe(facts.firstTokenMs / 1000, model)
    if (errorCode !== undefined && upstreamCodes.has(errorCode)) {
      metrics.upstreamErrors.add(1, errorCode)
      this.model.record(false)
    } else if (status === 'succeeded') this.model.record(true)
    this.#countPhases(watch, model)
    this.#countMoney(facts)
    if (usage === undefined) return
    metrics.tokens.add(usage.promptTokens, model, 'input')
    metrics.tokens.add(usage.completionTokens, model, 'output')
    metrics.tokens.add(usage.reasoningTokens, model, 'reasoning')
    metrics.tokens.add(usage.cachedTokens, model, 'cached')
  }

  #countPhases(watch: RequestWatch, model: string): void {
    const { metrics } = this
    for (const { name, detail, startedMs, endedMs, outcome = 'error' } of watch.phases) {
      const seconds = ((endedMs ?? watch.startedMs + watch.elapsedMs) - startedMs) / 1000
      if (name === 'upstream') {
        metrics.upstreamSeconds.observe(seconds, model, outcome)
        metrics.providerAttempts.add(1, detail ?? '', model, outcome)
      } else if (name === 'tool') {
        metrics.toolCalls.add(1, detail ?? '', outcome)
        if (detail === 'web_search' && outcome !== 'cancelled') this.search.record(outcome === 'completed')
      } else {
        metrics.phaseSeconds.observe(seconds, name)
        if (name === 'hold') metrics.holds.add(1, outcome)
      }
    }
  }

  #countMoney({ model, charged, searchCost, quote, voided, upstream }: EndFacts): void {
    const { metrics } = this
    if (upstream?.provider !== undefined) {
      metrics.providerCharged.add(Number(charged - searchCost), upstream.provider, model)
      if (upstream.cost !== undefined) metrics.providerCost.add(Number(upstream.cost), upstream.provider, model)
    }
    if (charged > 0n) {
      metrics.charged.add(Number(charged - searchCost), model, 'inference')
      if (searchCost > 0n) metrics.charged.add(Number(searchCost), model, 'search')
      metrics.quoteRatio.observe(Number(charged) / Number(quote), model)
    }
    if (quote > charged) metrics.refunded.add(Number(quote - charged), voided ? 'void' : 'unused')
  }
}
