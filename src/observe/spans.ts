import type { EndFacts } from './request-facts.ts'
import type { Phase, RequestWatch } from './request-watch.ts'

export type AttributeValue = string | number | boolean | bigint | readonly string[]
export type Attributes = Readonly<Record<string, AttributeValue | undefined>>

/** An OpenTelemetry span. Times are milliseconds since 1970. */
export type Span = {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string | undefined
  readonly name: string
  readonly kind: 'internal' | 'server' | 'client'
  readonly startMs: number
  readonly endMs: number
  readonly attributes: Attributes
  readonly isError: boolean
}

/**
 * The spans of one request; the first is the request itself. Attributes follow OpenTelemetry's conventions for generative AI, which
 * have none for money yet, so ours start with `penny.`. Spans contain neither prompts nor answers.
 */
export function spansOf(watch: RequestWatch, facts: EndFacts): readonly Span[] {
  const { trace } = watch
  if (trace === undefined) return []
  const own: Span = {
    traceId: trace.traceId,
    spanId: trace.spanId,
    parentSpanId: trace.parentSpanId,
    name: 'POST /v1/chat/completions',
    kind: 'server',
    ...spanTimes(watch.startedMs, watch.startedMs + watch.elapsedMs),
    attributes: { ...requestAttributes(facts), ...modelAttributes(facts), ...usageAttributes(facts) },
    isError: facts.status === 'failed',
  }
  return [own, ...watch.phases.map((phase) => phaseSpan(phase, watch, own, facts))]
}

function phaseSpan(phase: Phase, watch: RequestWatch, own: Span, facts: EndFacts): Span {
  const failed = phase.outcome === 'failed' || phase.outcome === 'error'
  return {
    traceId: own.traceId,
    spanId: phase.spanId!,
    parentSpanId: own.spanId,
    ...describePhase(phase, watch, facts),
    ...spanTimes(phase.startedMs, phase.endedMs ?? watch.startedMs + watch.elapsedMs),
    isError: failed,
  }
}

function describePhase(
  { name, detail, outcome }: Phase,
  watch: RequestWatch,
  facts: EndFacts,
): Pick<Span, 'name' | 'kind' | 'attributes'> {
  const failure = outcome === 'failed' || outcome === 'error' ? { 'error.type': facts.errorCode ?? outcome } : {}
  switch (name) {
    case 'upstream': {
      // With a single model call, the usage of the request is the usage of that call.
      const isOnly = watch.phases.filter((phase) => phase.name === 'upstream').length === 1
      const usage = isOnly ? usageAttributes(facts) : {}
      return {
        name: `chat ${facts.model}`,
        kind: 'client',
        attributes: { ...modelAttributes(facts), 'penny.provider': detail, ...usage, ...failure },
      }
    }
    case 'tool':
      return {
        name: `execute_tool ${detail}`,
        kind: 'internal',
        attributes: {
          'gen_ai.operation.name': 'execute_tool',
          'gen_ai.tool.name': detail,
          'gen_ai.tool.type': 'function',
          'penny.tool.status': outcome,
          ...failure,
        },
      }
    case 'hold':
      return {
        name,
        kind: 'internal',
        attributes: { 'penny.hold.decision': outcome, 'penny.quote_micro_usdc': facts.quote, ...failure },
      }
    case 'charge':
      return {
        name,
        kind: 'internal',
        attributes: {
          'penny.cost.charged_micro_usdc': facts.charged,
          'penny.cost.search_micro_usdc': facts.searchCost,
          'penny.voided': facts.voided,
          ...failure,
        },
      }
  }
}

function requestAttributes(facts: EndFacts): Attributes {
  return {
    'http.request.method': 'POST',
    'url.path': '/v1/chat/completions',
    'penny.request_id': facts.requestId,
    'penny.status': facts.status,
    'penny.quote_micro_usdc': facts.quote,
    'penny.cost.charged_micro_usdc': facts.charged,
    'penny.provider': facts.upstream?.provider,
    'penny.attempts': facts.upstream?.attempts,
    'penny.cost.upstream_micro_usdc': facts.upstream?.cost,
    'error.type': facts.errorCode,
  }
}

function modelAttributes({ model, stream, maxTokens, finishReason, firstTokenMs }: EndFacts): Attributes {
  return {
    'gen_ai.operation.name': 'chat',
    'gen_ai.provider.name': 'openai',
    'gen_ai.request.model': model,
    'gen_ai.request.stream': stream,
    'gen_ai.request.max_tokens': maxTokens,
    'gen_ai.response.finish_reasons': finishReason === undefined ? undefined : [finishReason],
    'gen_ai.response.time_to_first_chunk': firstTokenMs === undefined ? undefined : firstTokenMs / 1000,
  }
}

function usageAttributes({ usage }: EndFacts): Attributes {
  if (usage === undefined) return {}
  return {
    'gen_ai.usage.input_tokens': usage.promptTokens,
    'gen_ai.usage.output_tokens': usage.completionTokens,
    'gen_ai.usage.cache_read.input_tokens': usage.cachedTokens,
    'gen_ai.usage.reasoning.output_tokens': usage.reasoningTokens,
  }
}

function spanTimes(startedMs: number, endedMs: number): Pick<Span, 'startMs' | 'endMs'> {
  return { startMs: performance.timeOrigin + startedMs, endMs: performance.timeOrigin + endedMs }
}
