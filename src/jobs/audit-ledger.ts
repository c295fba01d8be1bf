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

const accountsMax = 1_000

async function auditTouched({ database, recentSeconds }: AuditOptions): Promise<readonly Violation[]> {
  const accounts = await findTouchedAccounts(database, recentSeconds, accountsMax)
  return accounts.length === 0 ? [] : findRecentViolations(database, accounts, recentSeconds)
}

/** Audits the accounts that were used lately, or all, and freezes the ledger when something is wrong. */
export async function auditLedger(options: AuditOptions, scope: AuditScope): Promise<void> {
  const { database, onViolations, onAudited } = options
  const violations = scope === 'all' ? await findViolations(database) : await auditTouched(options)
  onAudited?.(scope, violations.length === 0 ? 0n : await sumImbalance(database), violations.length)
  const [first] = violations
  if (first === undefined) return
  await freezeLedger(database, `${first.invariant} is broken at ${first.subject}: ${first.detail}`)
  onViolations(violations)
}
