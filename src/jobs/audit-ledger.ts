import type { Database } from '../db/database.ts'
import { findTouchedAccounts, findViolations, freezeLedger, type Violation } from '../ledger/audit.ts'

export type AuditOptions = {
  readonly database: Database
  /** Accounts used within so many seconds are looked at. */
  readonly recentSeconds: number
  readonly onViolations: (violations: readonly Violation[]) => void
}

const accountsMax = 1_000

/** Audits the accounts that were used lately, or all, and freezes the ledger when something is wrong. */
export async function auditLedger(options: AuditOptions, scope: 'recent' | 'all'): Promise<void> {
  const { database, recentSeconds, onViolations } = options
  const accounts = scope === 'all' ? undefined : await findTouchedAccounts(database, recentSeconds, accountsMax)
  if (accounts?.length === 0) return
  const violations = await findViolations(database, accounts)
  const [first] = violations
  if (first === undefined) return
  await freezeLedger(database, `${first.invariant} is broken at ${first.subject}: ${first.detail}`)
  onViolations(violations)
}
