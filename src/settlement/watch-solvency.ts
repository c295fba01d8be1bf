import { setTimeout as sleep } from 'node:timers/promises'
import { findFreeze, freezeLedger } from '../ledger/freeze.ts'
import { checkSolvency, isSolvent, recordSolvency, type SolvencyParts } from './solvency.ts'

export type SolvencyWatchParts = SolvencyParts & {
  readonly onAlarm: (what: string, details: object) => void
  /** Wait before the second comparison: the first may have read the ledger and the chain at different times. */
  readonly recheckMs: number
}

/** Its number in ARCHITECTURE.md and in the runbooks. */
export const solvencyInvariant = 'I12'

/**
 * Compares the ledger with the chain. A short account freezes the ledger until an operator acts. A short seller stops only payments by
 * the seller: one customer's refund must not stop the requests of all.
 */
export async function watchSolvency({ onAlarm, recheckMs, ...parts }: SolvencyWatchParts): Promise<void> {
  const { database } = parts
  const wasFrozen = (await findFreeze(database)) !== undefined
  const first = await checkSolvency(parts)
  const report = isSolvent(first) ? first : await sleep(recheckMs).then(() => checkSolvency(parts))
  await recordSolvency(database, report)
  if (report.seller_short_atomic !== '0') onAlarm('the seller has less than it owes back', { report })
  if (report.short.length === 0) return
  onAlarm('the chain has less than the ledger says', { report })
  // The ledger may have been repaired and opened during this comparison, for example by penny recover. The next comparison decides.
  if (wasFrozen) return
  const reason = `${solvencyInvariant} is broken: the chain has less than the ledger says at block ${report.block}`
  await freezeLedger(database, reason)
}
