import { randomBytes } from 'node:crypto'

/** The position of a request in a trace that may have begun elsewhere (W3C Trace Context). */
export type TraceContext = {
  readonly traceId: string
  /** Id of the request's own span. */
  readonly spanId: string
  /** Id of the client's span. */
  readonly parentSpanId: string | undefined
}

const pattern = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/
const noTrace = '0'.repeat(32)
const noSpan = '0'.repeat(16)

/**
 * Continues the client's trace, or starts a new one when there is no readable header. Returns undefined when the client's flags say
 * that the trace is not recorded: spans without their parents are useless.
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

/** The header for the next service: the trace, and the calling span. */
export function formatTraceparent({ traceId }: TraceContext, spanId: string): string {
  return `00-${traceId}-${spanId}-01`
}

export function createSpanId(): string {
  return randomHex(8)
}

function randomHex(bytes: number): string {
  return randomBytes(bytes).toString('hex')
}
