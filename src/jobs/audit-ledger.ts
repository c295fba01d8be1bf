import type { Database } from '../db/database.ts'
import {
  findRecentViolations,
  findTouchedAccounts,
  findViolations,
  sumImbalance,
  type Violation,
} from '../ledger/audit.ts'
import { freezeLedger } from '../ledger/freeze.ts'

export type AuditOptions = {
  readonly database: Database
  /** Accounts used within so many seconds are looked at. */
  readonly recentSeconds: number
  readonly onViolations: (violations: readonly Violation[]) => void
  /** An audit is done: so many atomic USDC are not accounted for. */
  readonly onAudited?: (scope: AuditScope, imbalance: bigint, violations: number) => void
}

export type AuditScope = 'recent' | 'all'

/** Audited in one snapshot: keeps each short, because a long one holds back the database's cleanup. */
const accountsMax = 1_000

/** Audits the accounts that were used lately, or all, and freezes the ledger when something is wrong. */
export class Auditor {
  readonly #options: AuditOptions
  /** When the last complete run over the accounts in use began. */
  #auditedToMs: number | undefined

  constructor(options: AuditOptions) {
    this.#options = options
  }

  async audit(scope: AuditScope): Promise<void> {
    const { database, onViolations, onAudited } = this.#options
    const violations = scope === 'all' ? await findViolations(database) : await this.#auditTouched()
    onAudited?.(scope, violations.length === 0 ? 0n : await sumImbalance(database), violations.length)
    const [first] = violations
    if (first === undefined) return
    await freezeLedger(database, `${first.invariant} is broken at ${first.subject}: ${first.detail}`)
    onViolations(violations)
  }

  /** Every account in use, in pages in the order of their ids: however many there are, each gets its turn in every run. */
  async #auditTouched(): Promise<readonly Violation[]> {
    const { database, recentSeconds } = this.#options
    const beganMs = performance.now()
    // A run that takes longer than the window, or fails, leaves no gap: the next one looks back to where it began.
    const fromMs = this.#auditedToMs ?? beganMs
    const seconds = () => recentSeconds + Math.ceil((performance.now() - fromMs) / 1000)
    const accounts = await findTouchedAccounts(database, seconds())
    const violations: Violation[] = []
    for (let start = 0; start < accounts.length; start += accountsMax) {
      const page = accounts.slice(start, start + accountsMax)
      violations.push(...(await findRecentViolations(database, page, seconds())))
    }
    this.#auditedToMs = beganMs
    return violations
  }
}
