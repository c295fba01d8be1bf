import { type FailpointName, webhookFailpointNames } from '../../src/process/failpoints.ts'
import type { Row, Seen } from './history.ts'
import type { Generated } from './model-upstream.ts'
import type { NodeFault, PostgresFault } from './plan.ts'

// A fault that hits no request proves nothing: this counts the states of the requests that each fault hit.

/** States of a request. */
export const states = ['before hold', 'held', 'streaming', 'checkpointed', 'ending'] as const
export type State = (typeof states)[number]

/** A fault that was injected. */
export type Done = {
  readonly name: string
  /** The affected node; undefined means all of them. */
  readonly node: string | undefined
  /** Only requests through the clients' proxy were affected. */
  readonly proxiedOnly?: boolean
  readonly fromMs: number
  readonly toMs: number
  /** The requests with a checkpoint at that time, by the digits of their ids. */
  readonly checkpointed: ReadonlySet<string>
  /** Known in advance: a failpoint is a state. */
  readonly state?: State | undefined
}

export type Sides = {
  readonly seen: readonly Seen[]
  readonly generated: ReadonlyMap<number, readonly Generated[]>
  readonly rows: readonly Row[]
}

const stateOfFailpoint: Readonly<Record<FailpointName, State>> = {
  after_parse: 'before hold',
  after_quote: 'before hold',
  before_hold_commit: 'before hold',
  after_hold_commit: 'held',
  before_upstream_write: 'held',
  on_chunk: 'streaming',
  after_checkpoint: 'checkpointed',
  before_end_commit: 'ending',
  after_end_commit: 'ending',
  before_last_frame: 'ending',
}

export function faultName(fault: NodeFault): string {
  if (fault.type === 'failpoint') return `node: kill at ${fault.name}`
  if (fault.type === 'lost') return `node: ${fault.what} ${fault.when === 'unheard' ? 'unheard' : 'reply lost'}`
  if (fault.type === 'late') return `node: ${fault.what} late`
  return `node: ${fault.type}`
}

export function postgresFaultName({ type }: PostgresFault): string {
  return `postgres: ${type}`
}

export function failpointState(fault: NodeFault): State | undefined {
  return fault.type === 'failpoint' ? stateOfFailpoint[fault.name] : undefined
}

/** A run that delivers webhooks must inject each of these. They affect no request. */
export const delivererFaults: readonly string[] = webhookFailpointNames.map((name) => `deliverer: kill at ${name}`)

/** A run must hit each of these pairs. Other pairs depend on chance and are only counted. */
export const mustHit: readonly (readonly [fault: string, states: readonly State[]])[] = [
  ...Object.entries(stateOfFailpoint).map(([name, state]) => [`node: kill at ${name}`, [state]] as const),
  ['node: kill', ['held', 'streaming', 'checkpointed']],
  ['node: pause', ['streaming', 'checkpointed']],
  ['node: terminate', ['streaming']],
  ['node: database-cut', ['streaming', 'checkpointed']],
  ['node: client-cut', ['streaming']],
  ['node: place_holds reply lost', ['held']],
  ['node: place_holds unheard', ['before hold']],
  ['node: place_holds late', ['before hold']],
  ['node: end_requests reply lost', ['ending']],
  ['node: end_requests unheard', ['ending']],
  ['node: end_requests late', ['ending']],
  ['postgres: kill', states],
  ['postgres: restart', ['streaming', 'checkpointed']],
  ['postgres: pause', ['streaming', 'checkpointed', 'ending']],
]

export type FaultCount = { faults: number; readonly met: Record<State, number> }

/** How often each fault hit a request in each state. */
export class Coverage {
  readonly #counts: Map<string, FaultCount>

  /** Continues from the counts of an earlier part of the run. */
  constructor(counts: Readonly<Record<string, FaultCount>> = {}) {
    this.#counts = new Map(Object.entries(structuredClone(counts)))
  }

  get counts(): Readonly<Record<string, FaultCount>> {
    return Object.fromEntries([...this.#counts].sort(([a], [b]) => a.localeCompare(b)))
  }

  add(done: readonly Done[], { seen, generated, rows }: Sides): void {
    const rowOf = new Map(rows.map((row) => [row.name, row]))
    for (const fault of done) {
      const count = this.#countOf(fault.name)
      count.faults += 1
      if (fault.state !== undefined) count.met[fault.state] += 1
      for (const request of seen) {
        if (fault.node !== undefined && request.node !== fault.node) continue
        if (fault.proxiedOnly === true && !request.proxied) continue
        for (const state of statesDuring(fault, request, rowOf.get(request.name), generated.get(request.name)?.[0])) {
          // The request that hit the failpoint is already counted.
          if (state !== fault.state) count.met[state] += 1
        }
      }
    }
  }

  missing(): readonly string[] {
    return mustHit.flatMap(([fault, needed]) =>
      needed.filter((state) => !this.#countOf(fault).met[state]).map((state) => `${fault} × ${state}`),
    )
  }

  table(): string {
    const width = Math.max(...[...this.#counts.keys()].map((name) => name.length)) + 2
    const cell = (text: string | number) => String(text).padStart(14)
    const head = `${'fault'.padEnd(width)}${cell('done')}${states.map(cell).join('')}`
    const lines = [...this.#counts]
      .sort(([a], [b]) => a.localeCompare(b))
      .map(
        ([name, { faults, met }]) =>
          `${name.padEnd(width)}${cell(faults)}${states.map((state) => cell(met[state])).join('')}`,
      )
    return [head, ...lines].join('\n')
  }

  #countOf(name: string) {
    let count = this.#counts.get(name)
    if (count === undefined) {
      count = { faults: 0, met: { 'before hold': 0, held: 0, streaming: 0, checkpointed: 0, ending: 0 } }
      this.#counts.set(name, count)
    }
    return count
  }
}

/** The states of a request while the fault lasted. */
function statesDuring(
  fault: Done,
  seen: Seen,
  row: Row | undefined,
  generated: Generated | undefined,
): readonly State[] {
  const closed = seen.closedMs ?? Number.POSITIVE_INFINITY
  const held = row?.status === 'refused' ? undefined : row?.createdMs
  const phases: readonly (readonly [State, number | undefined, number])[] = [
    ['before hold', seen.sentMs, held ?? closed],
    ['held', held, generated?.firstOutputMs ?? closed],
    ['streaming', generated?.firstOutputMs, generated?.finishedMs ?? closed],
    ['ending', generated?.finishedMs, closed],
  ]
  const met = phases.flatMap(([state, from, to]) =>
    from !== undefined && from <= fault.toMs && Math.min(to, closed) >= fault.fromMs && from <= closed ? [state] : [],
  )
  return met.includes('streaming') && row !== undefined && fault.checkpointed.has(row.id.replaceAll('-', ''))
    ? [...met, 'checkpointed']
    : met
}
