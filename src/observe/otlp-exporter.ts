import type { Attributes, AttributeValue, Span } from './spans.ts'

export type ExporterOptions = {
  /** Base address of the collector; spans are posted to `/v1/traces` below it. */
  readonly endpoint: string
  readonly headers: Readonly<Record<string, string>>
  readonly resource: Attributes
  /** Reports how many spans were dropped. */
  readonly onDropped: (count: number) => void
}

export type SpanExporter = {
  export(spans: readonly Span[]): void
  /** Sends the remaining spans once, with a short timeout. */
  stop(): Promise<void>
}

const queuedMax = 4_096
const batchMax = 512
const sendMsMax = 5_000
const flushMs = 1_000

/**
 * Sends spans to a collector as OTLP over HTTP, in JSON. It never blocks a request: spans are queued, sent in batches one after
 * another, and dropped when the queue is full or the collector does not accept them.
 */
export function createExporter(options: ExporterOptions): SpanExporter {
  const { endpoint, headers, resource, onDropped } = options
  let queued: Span[] = []
  let sending: Promise<void> | undefined
  let timer: NodeJS.Timeout | undefined

  async function send(spans: readonly Span[], msMax: number): Promise<void> {
    try {
      const response = await fetch(`${endpoint}/v1/traces`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(toOtlp(resource, spans)),
        signal: AbortSignal.timeout(msMax),
      })
      await response.body?.cancel()
      if (!response.ok) onDropped(spans.length)
    } catch {
      onDropped(spans.length)
    }
  }

  function flush(): void {
    timer = undefined
    if (queued.length === 0) return
    sending ??= send(queued.splice(0, batchMax), sendMsMax).finally(() => {
      sending = undefined
      if (queued.length > 0) flush()
    })
  }

  return {
    export(spans) {
      const room = queuedMax - queued.length
      if (spans.length > room) return onDropped(spans.length)
      queued.push(...spans)
      if (queued.length >= batchMax) flush()
      else timer ??= setTimeout(flush, flushMs).unref()
    },
    async stop() {
      clearTimeout(timer)
      await sending
      const rest = queued.splice(0)
      queued = []
      if (rest.length > 0) await send(rest, Math.min(sendMsMax, 2 * flushMs))
    },
  }
}

const kinds = { internal: 1, server: 2, client: 3 } as const
const statusError = 2

/** The protocol's ExportTraceServiceRequest. Its JSON form writes 64-bit numbers as decimal text. */
function toOtlp(resource: Attributes, spans: readonly Span[]): object {
  return {
    resourceSpans: [
      {
        resource: { attributes: toKeyValues(resource) },
        scopeSpans: [{ scope: { name: 'penny' }, spans: spans.map(toOtlpSpan) }],
      },
    ],
  }
}

function toOtlpSpan(span: Span): object {
  return {
    traceId: span.traceId,
    spanId: span.spanId,
    ...(span.parentSpanId !== undefined && { parentSpanId: span.parentSpanId }),
    name: span.name,
    kind: kinds[span.kind],
    startTimeUnixNano: toNanoseconds(span.startMs),
    endTimeUnixNano: toNanoseconds(span.endMs),
    attributes: toKeyValues(span.attributes),
    status: span.isError ? { code: statusError } : {},
  }
}

function toKeyValues(attributes: Attributes): readonly object[] {
  return Object.entries(attributes).flatMap(([key, value]) =>
    value === undefined ? [] : [{ key, value: toAnyValue(value) }],
  )
}

function toAnyValue(value: AttributeValue): object {
  if (typeof value === 'string') return { stringValue: value }
  if (typeof value === 'boolean') return { boolValue: value }
  if (typeof value === 'bigint') return { intValue: value.toString() }
  if (typeof value === 'number') return Number.isInteger(value) ? { intValue: String(value) } : { doubleValue: value }
  return { arrayValue: { values: value.map(toAnyValue) } }
}

/** A double of milliseconds since 1970 is precise to about a microsecond. */
function toNanoseconds(ms: number): string {
  return `${Math.round(ms * 1000)}000`
}
