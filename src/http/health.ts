import { type Database, isTransient } from '../db/database.ts'
import { DatabaseNewerError, pendingMigrations } from '../db/migrate.ts'
import { OperatorError } from '../errors.ts'
import { findFreeze, restoredReason } from '../ledger/freeze.ts'
import { tryHold } from '../ledger/try-hold.ts'
import type { Standing } from '../observe/outcomes.ts'

/** Reasons why the service cannot serve, by name; empty when it is ready. */
export type Problems = Readonly<Record<string, string>>

/** A check of the ledger's database. `/readyz` and `penny doctor` run the same ones. */
type LedgerCheck = {
  readonly name: 'migrations' | 'ledger'
  readonly passed: string
  find(database: Database, migrationsFolder: string): Promise<LedgerProblem | undefined>
}

type LedgerProblem = {
  /** Public, so it contains nothing of the server's own messages. */
  readonly reason: string
  readonly detail: string
  readonly remedy: string
  readonly mayServe?: boolean
}

export const ledgerChecks: readonly LedgerCheck[] = [
  {
    name: 'migrations',
    passed: 'All migrations are applied.',
    async find(database, migrationsFolder) {
      try {
        const pending = (await pendingMigrations(database, migrationsFolder)).join(', ')
        if (pending === '') return undefined
        return { reason: `not applied: ${pending}`, detail: `Not applied: ${pending}.`, remedy: 'Run penny migrate.' }
      } catch (error) {
        if (!(error instanceof OperatorError)) throw error
        const remedy = 'Run the version of penny that matches this database.'
        // A newer node has migrated the schema. This one serves until it is replaced: otherwise an upgrade would stop all nodes together.
        const mayServe = error instanceof DatabaseNewerError
        return { reason: error.message, detail: error.message, remedy, mayServe }
      }
    },
  },
  {
    name: 'ledger',
    passed: 'The ledger accepts requests.',
    async find(database) {
      const freeze = await findFreeze(database)
      if (freeze === undefined) return undefined
      const remedy = freeze.startsWith(restoredReason)
        ? 'Run penny recover while the service runs. See docs/runbooks/backup.md.'
        : 'Find the cause with penny audit. When all invariants hold, run penny audit --unfreeze.'
      return { reason: `frozen: ${freeze}`, detail: `The ledger is frozen: ${freeze}`, remedy }
    },
  },
]

/** Database problems that prevent serving: another schema version, a frozen ledger, failing holds. */
export async function findProblems(database: Database, migrationsFolder: string): Promise<Problems> {
  for (const { name, find } of ledgerChecks) {
    const problem = await find(database, migrationsFolder)
    if (problem !== undefined && problem.mayServe !== true) return { [name]: problem.reason }
  }
  return (await holdsFail(database)) ? { ledger: 'holds fail: see penny doctor' } : {}
}

/**
 * Whether holds fail with an error that is not transient. A Citus worker that is down does not count: accounts on the other workers are
 * still served.
 */
async function holdsFail(database: Database): Promise<boolean> {
  try {
    await tryHold(database, 0)
    return false
  } catch (error) {
    return !isTransient(error)
  }
}

type ReadinessOptions = {
  readonly look: () => Promise<Problems>
  readonly onError: (error: unknown) => void
  /** Monotonic milliseconds. */
  readonly now: () => number
}

const keptMs = 1_000

/**
 * Whether the service can serve. Public, so the database is asked at most once a second, one query at a time, and its own error
 * messages go to the log only.
 */
export class Readiness {
  readonly #options: ReadinessOptions
  #looking: Promise<Problems> | undefined
  #found: Problems = {}
  #foundMs = Number.NEGATIVE_INFINITY

  constructor(options: ReadinessOptions) {
    this.#options = options
  }

  async problems(): Promise<Problems> {
    if (this.#options.now() - this.#foundMs < keptMs) return this.#found
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined
    })
    return this.#looking
  }

  async #look(): Promise<Problems> {
    try {
      this.#found = await this.#options.look()
    } catch (error) {
      this.#options.onError(error)
      this.#found = { database: 'the database does not answer' }
    }
    this.#foundMs = this.#options.now()
    return this.#found
  }
}

/** State of the parts of the service at one moment. */
export type Health = {
  readonly isReady: boolean
  readonly model: Standing | 'off'
  readonly search: Standing | 'off'
  readonly chain: Standing
  /** Response time of the database; undefined when it did not answer. */
  readonly databaseMs: number | undefined
}

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

type HealthSlot = Health & { readonly start: Date }

const slotMs = 5 * 60_000
const slotsMax = (24 * 60 * 60_000) / slotMs

/**
 * The last 24 hours of this node in slots of five minutes, in memory. A slot keeps its worst sample, so that a short outage stays
 * visible. A slot is missing when the node did not run.
 */
export class HealthHistory {
  #slots: readonly HealthSlot[] = []

  record(health: Health, atMs: number): void {
    const start = new Date(Math.floor(atMs / slotMs) * slotMs)
    const last = this.#slots.at(-1)
    if (last?.start.getTime() === start.getTime())
      this.#slots = [...this.#slots.slice(0, -1), { ...worseOf(last, health), start }]
    else this.#slots = [...this.#slots, { ...health, start }].slice(-slotsMax)
  }

  get slots(): readonly HealthSlot[] {
    return this.#slots
  }
}

function worseOf(one: Health, other: Health): Health {
  const isSlow = one.databaseMs === undefined || other.databaseMs === undefined
  return {
    isReady: one.isReady && other.isReady,
    model: worseStanding(one.model, other.model),
    search: worseStanding(one.search, other.search),
    chain: worseStanding(one.chain, other.chain),
    databaseMs: isSlow ? undefined : Math.max(one.databaseMs, other.databaseMs),
  }
}

const order = ['off', 'unused', 'working', 'failing'] as const

function worseStanding<S extends Standing | 'off'>(one: S, other: S): S {
  return order.indexOf(one) >= order.indexOf(other) ? one : other
}
