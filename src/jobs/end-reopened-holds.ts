import { chargeOrphan } from '../billing/charge.ts'
import type { Database } from '../db/database.ts'
import type { Holds } from '../ledger/holds.ts'
import { findUnservedHolds, type OrphanedHold } from '../ledger/nodes.ts'

const holdsMax = 500

export type ReopenedHolds = {
  /** Requests that were ended again with the charge that this node remembers. */
  readonly same: number
  /** Requests that were ended at their last checkpoint, or voided without one. */
  readonly checkpoint: number
  /** Why others could not be ended. The next check tries again. */
  readonly failures: readonly unknown[]
}

/**
 * Ends the requests that the ledger holds open for this node and that the node does not serve. A failover to a standby that lags behind,
 * or a restored copy, brings them back: the node believes that they ended, and its lease keeps others from ending them. The end is
 * written again as it was, or like an orphan's when the node no longer remembers it. A request ends once: ending one that has ended
 * meanwhile changes nothing. `onUnpriced` gets the holds that are void because the ledger does not know their prices.
 */
export async function endReopenedHolds(
  database: Database,
  holds: Holds,
  onUnpriced: (hold: OrphanedHold) => void = () => {},
): Promise<ReopenedHolds> {
  const count = { same: 0, checkpoint: 0 }
  const failures: unknown[] = []
  for (;;) {
    const found = await findUnservedHolds(database, holds.node, holds.serving, holdsMax)
    // Holds that were placed since then are served now.
    const reopened = found.filter(({ requestId }) => !holds.isServing(requestId))
    const ends = await Promise.allSettled(reopened.map((hold) => endAgain(holds, hold, onUnpriced)))
    for (const end of ends) {
      if (end.status === 'rejected') failures.push(end.reason)
      else if (end.value !== undefined) count[end.value] += 1
    }
    if (reopened.length < holdsMax || failures.length > 0) return { ...count, failures }
  }
}

/** Undefined when the request had ended meanwhile. */
async function endAgain(
  holds: Holds,
  hold: OrphanedHold,
  onUnpriced: (hold: OrphanedHold) => void,
): Promise<'same' | 'checkpoint' | undefined> {
  const same = await holds.endAgain(hold.requestId)
  if (same === undefined && hold.prices === undefined) onUnpriced(hold)
  const end = same ?? (await holds.end(chargeOrphan(hold)))
  if (!end.endedNow) return undefined
  return same === undefined ? 'checkpoint' : 'same'
}
