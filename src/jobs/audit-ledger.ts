import type { Database } from '../db/database.ts'
import {
  findRecentViolations,
  findTouchedAccounts,
  findViolations,
  sumImbalance,
  type Violation,
} from '../ledger/audit.ts'
import { completeFreeze, freezeLedger } from '../ledger/freeze.ts'

export type AuditOptions = {
  readonly database: Database
  /** Audits accounts that were used within this many seconds. */
  readonly recentSeconds: number
  readonly onViolations: (violations: readonly Violation[]) => void
  /** Called after each audit with the atomic USDC that are not accounted for. */
  readonly onAudited?: (scope: AuditScope, imbalance: bigint, violations: number) => void
}

export type AuditScope = 'recent' | 'all'

/** Accounts per snapshot. Keeps each snapshot short, because a long one holds back vacuum. */
const accountsMax = 1_000

/** Audits recently used accounts, or all, and freezes the ledger when an invariant is violated. */
export class Auditor {
  readonly #options: AuditOptions
  /** Start of the last complete run over the accounts in use. */
  #auditedToMs: number | undefined

  constructor(options: AuditOptions) {
    this.#options = options
  }

  async audit(scope: AuditScope): Promise<void> {
    const { database, onViolations, onAudited } = this.#options
    await completeFreeze(database)
    const violations = scope === 'all' ? await findViolations(database) : await this.#auditTouched()
    onAudited?.(scope, violations.length === 0 ? 0n : await sumImbalance(database), violations.length)
    const [first] = violations
    if (first === undefined) return
    await freezeLedger(database, `${first.invariant} is broken at ${first.subject}: ${first.detail}`)
    onViolations(violations)
  }

  /** Audits every account in use, in pages by id: however many there are, each is audited in every run. */
  async #auditTouched(): Promise<readonly Violation[]> {
    const { database, recentSeconds } = this.#options
    const beganMs = performance.now()
    // A run that fails or takes longer than the window leaves no gap: the next run looks back to where it began.
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
