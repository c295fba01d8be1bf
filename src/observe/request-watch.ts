import { createSpanId, formatTraceparent, type TraceContext } from './trace-context.ts'

export type PhaseName = 'hold' | 'upstream' | 'tool' | 'charge'

/** One step of a request: its start, its end and its outcome in a few words. */
export type Phase = {
  readonly name: PhaseName
  /** Distinguishes several phases of the same name: the name of the tool. */
  readonly detail: string | undefined
  /** Set only when the request is traced. */
  readonly spanId: string | undefined
  readonly startedMs: number
  endedMs: number | undefined
  outcome: string | undefined
}

/**
 * Records the timing of one request's phases for its response headers, the metrics and, if it is traced, its spans. It travels with
 * the request.
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

  /** Later calls for the same phase are ignored. */
  end(phase: Phase, outcome: string): void {
    if (phase.endedMs !== undefined) return
    phase.endedMs = this.#now()
    phase.outcome = outcome
  }

  /** Runs the work as one phase. */
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

  /** The header that lets the upstream called in this phase continue the trace. */
  headersOf({ spanId }: Phase): Readonly<Record<string, string>> | undefined {
    return this.trace === undefined || spanId === undefined
      ? undefined
      : { traceparent: formatTraceparent(this.trace, spanId) }
  }

  /** Value of the `Server-Timing` header: milliseconds per phase. */
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
