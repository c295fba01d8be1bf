import { randomBytes } from 'node:crypto'

/** The place of a request in a trace that may have begun elsewhere (W3C Trace Context). */
export type TraceContext = {
  readonly traceId: string
  /** Of the request's own span. */
  readonly spanId: string
  /** Of the caller's. */
  readonly parentSpanId: string | undefined
}

const pattern = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/
const noTrace = '0'.repeat(32)
const noSpan = '0'.repeat(16)

/**
 * Continues the caller's trace, or begins one where there is none that can be read. Undefined when the caller says that this
 * trace is not recorded: half a trace helps nobody.
 */
export function continueTrace(traceparent: string | undefined): TraceContext | undefined {
  const [, version, traceId, parentSpanId, flags = '00', rest] = pattern.exec(traceparent ?? '') ?? []
  const readable =
    traceId !== undefined &&
    version !== 'ff' &&
    traceId !== noTrace &&
    parentSpanId !== noSpan &&
    (version !== '00' || rest === undefined)
  if (!readable) return { traceId: randomHex(16), spanId: createSpanId(), parentSpanId: undefined }
  const isSampled = (Number.parseInt(flags, 16) & 1) === 1
  return isSampled ? { traceId, spanId: createSpanId(), parentSpanId } : undefined
}

/** For the next service: the trace, and the span that asks. */
export function formatTraceparent({ traceId }: TraceContext, spanId: string): string {
  return `00-${traceId}-${spanId}-01`
}

export function createSpanId(): string {
  return randomHex(8)
}

function randomHex(bytes: number): string {
  return randomBytes(bytes).toString('hex')
}
