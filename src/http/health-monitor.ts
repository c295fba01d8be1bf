import type { Standing } from '../observe/outcomes.ts'
import { type Health, HealthHistory } from './health-history.ts'
import type { Readiness } from './readiness.ts'

type HealthOptions = {
  readonly readiness: Pick<Readiness, 'problems'>
  readonly standings: () => Readonly<Record<'model' | 'search', Standing | 'off'>>
  /** The last comparison of ledger and chain; undefined where there is no chain. */
  readonly solvency: (() => Promise<Readonly<Record<string, unknown>>>) | undefined
  /** Unix milliseconds. */
  readonly clock: () => number
}

// The ledger is compared with the chain every ten seconds: an old comparison means that the chain node does not answer.
const comparisonMsMax = 120_000

/** Samples the state of the service for its status page. Its owner calls `sample` once a minute. */
export class HealthMonitor {
  readonly history = new HealthHistory()
  readonly #options: HealthOptions
  #latest: Health | undefined

  constructor(options: HealthOptions) {
    this.#options = options
  }

  /** The last sample; takes the first one if there is none yet. */
  async latest(): Promise<Health> {
    return this.#latest ?? this.sample()
  }

  async sample(): Promise<Health> {
    const health = await this.look()
    this.#latest = health
    this.history.record(health, this.#options.clock())
    return health
  }

  /** The current state. Not recorded in the history. */
  async look(): Promise<Health> {
    const { readiness, standings, solvency, clock } = this.#options
    const startedMs = clock()
    const report = await solvency?.().catch(() => undefined)
    const problems = await readiness.problems()
    return {
      isReady: Object.keys(problems).length === 0,
      ...standings(),
      chain: chainStanding(report, clock()),
      databaseMs: 'database' in problems ? undefined : clock() - startedMs,
    }
  }
}

function chainStanding(report: Readonly<Record<string, unknown>> | undefined, nowMs: number): Standing {
  if (typeof report?.checked_at !== 'string') return 'unused'
  const isFresh = nowMs - Date.parse(report.checked_at) < comparisonMsMax
  return report.ok === true && isFresh ? 'working' : 'failing'
}
