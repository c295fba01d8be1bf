import type { Database } from '../db/database.ts'
import {
  findRecentViolations,
  findTouchedAccounts,
  findViolations,
  freezeLedger,
  type Violation,
} from '../ledger/audit.ts'

export type AuditOptions = {
  readonly database: Database
  /** Accounts used within so many seconds are looked at. */
  readonly recentSeconds: number
  readonly onViolations: (violations: readonly Violation[]) => void
}

const accountsMax = 1_000

async function auditTouched({ database, recentSeconds }: AuditOptions): Promise<readonly Violation[]> {
  const accounts = await findTouchedAccounts(database, recentSeconds, accountsMax)
  return accounts.length === 0 ? [] : findRecentViolations(database, accounts, recentSeconds)
}

/** Audits the accounts that were used lately, or all, and freezes the ledger when something is wrong. */
export async function auditLedger(options: AuditOptions, scope: 'recent' | 'all'): Promise<void> {
  const { database, onViolations } = options
  const violations = scope === 'all' ? await findViolations(database) : await auditTouched(options)
  const [first] = violations
  if (first === undefined) return
  await freezeLedger(database, `${first.invariant} is broken at ${first.subject}: ${first.detail}`)
  onViolations(violations)
}
