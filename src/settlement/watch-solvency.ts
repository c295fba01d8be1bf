import { setTimeout as sleep } from 'node:timers/promises'
import { findFreeze, freezeLedger } from '../ledger/freeze.ts'
import { checkSolvency, isSolvent, recordSolvency, type SolvencyParts } from './solvency.ts'

export type SolvencyWatchParts = SolvencyParts & {
  readonly onAlarm: (what: string, details: object) => void
  /** Until the second look; a shortage seen once may be a matter of two clocks. */
  readonly recheckMs: number
}

/** Its number in ARCHITECTURE.md and in the runbooks. */
export const solvencyInvariant = 'I12'

/**
 * Compares the books with the chain. When an account is short, new holds stop until an operator has looked. A seller that has
 * less than it owes back stops only what needs the seller: one customer's refund must not stop everybody's requests.
 */
export async function watchSolvency({ onAlarm, recheckMs, ...parts }: SolvencyWatchParts): Promise<void> {
  const { database } = parts
  const wasFrozen = (await findFreeze(database)) !== undefined
  const first = await checkSolvency(parts)
  const report = isSolvent(first) ? first : await sleep(recheckMs).then(() => checkSolvency(parts))
  await recordSolvency(database, report)
  if (report.seller_short_atomic !== '0') onAlarm('the seller has less than it owes back', { report })
  if (report.short.length === 0) return
  onAlarm('the chain has less than the books say', { report })
  // Books that were frozen already may have been mended and opened while we looked, as by penny recover: the next look decides.
  if (wasFrozen) return
  const reason = `${solvencyInvariant} is broken: the chain has less than the books say at block ${report.block}`
  await freezeLedger(database, reason)
}
