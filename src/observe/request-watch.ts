import { createSpanId, formatTraceparent, type TraceContext } from './trace-context.ts'

export type PhaseName = 'hold' | 'upstream' | 'tool' | 'charge'

/** A part of the work on a request: when it was done, and in a few words how it went. */
export type Phase = {
  readonly name: PhaseName
  /** Which of several: the name of a tool. */
  readonly detail: string | undefined
  /** Only where the request is traced. */
  readonly spanId: string | undefined
  readonly startedMs: number
  endedMs: number | undefined
  outcome: string | undefined
}

/**
 * Keeps the times of one request's parts, for its headers, the metrics and, where it is traced, its spans. It travels with the
 * request and knows nothing of who reads it.
 */
export class RequestWatch {
  readonly startedMs: number
  readonly trace: TraceContext | undefined
  readonly phases: Phase[] = []
  readonly #now: () => number

  constructor(now: () => number, trace: TraceContext | undefined) {
    this.#now = now
    this.trace = trace
    this.startedMs = now()
  }

  begin(name: PhaseName, detail?: string): Phase {
    const spanId = this.trace === undefined ? undefined : createSpanId()
    const phase = { name, detail, spanId, startedMs: this.#now(), endedMs: undefined, outcome: undefined }
    this.phases.push(phase)
    return phase
  }

  /** The first end counts. */
  end(phase: Phase, outcome: string): void {
    if (phase.endedMs !== undefined) return
    phase.endedMs = this.#now()
    phase.outcome = outcome
  }

  /** Does a piece of work as one phase. */
  async during<Result>(
    name: PhaseName,
    work: () => Promise<Result>,
    outcomeOf: (result: Result) => string,
  ): Promise<Result> {
    const phase = this.begin(name)
    try {
      const result = await work()
      this.end(phase, outcomeOf(result))
      return result
    } finally {
      this.end(phase, 'error')
    }
  }

  get elapsedMs(): number {
    return this.#now() - this.startedMs
  }

  /** The header that lets the one who is asked in this phase continue the trace. */
  headersOf({ spanId }: Phase): Readonly<Record<string, string>> | undefined {
    return this.trace === undefined || spanId === undefined
      ? undefined
      : { traceparent: formatTraceparent(this.trace, spanId) }
  }

  /** The value of a `Server-Timing` header: what the time went into, in milliseconds. */
  get serverTiming(): string {
    const sums = new Map<PhaseName, number>()
    for (const { name, startedMs, endedMs } of this.phases) {
      if (endedMs !== undefined) sums.set(name, (sums.get(name) ?? 0) + endedMs - startedMs)
    }
    return [...sums, ['total', this.elapsedMs] as const]
      .map(([name, ms]) => `${name};dur=${Math.round(ms * 10) / 10}`)
      .join(', ')
  }
}
