import { chargeOrphan } from '../billing/charge.ts'
import type { Database } from '../db/database.ts'
import type { Holds } from '../ledger/holds.ts'
import { deleteDeadNodes, findOrphanedHolds, type OrphanedHold } from '../ledger/nodes.ts'

const orphansMax = 500

export type OrphanOptions = {
  /** False: only requests of nodes that released their lease. Other nodes may be alive and unable to renew theirs. */
  readonly withExpired?: boolean
  /** Gets the holds that are void because the ledger does not know their prices. */
  readonly onUnpriced?: (orphan: OrphanedHold) => void
}

/**
 * Ends requests of nodes whose lease has expired: at their last checkpoint, or as a void without one. Several nodes may run it
 * concurrently: a request ends once. A request that cannot be ended does not block the others. Returns how many were ended.
 */
export async function endOrphanedHolds(
  database: Database,
  holds: Holds,
  { withExpired = true, onUnpriced = () => {} }: OrphanOptions = {},
): Promise<number> {
  let count = 0
  for (;;) {
    const found = await findOrphanedHolds(database, orphansMax, withExpired)
    // After an outage longer than the lease all leases have expired, including this node's own.
    const orphans = found.filter(({ requestId }) => !holds.isServing(requestId))
    for (const orphan of orphans) if (orphan.prices === undefined) onUnpriced(orphan)
    const ends = await Promise.allSettled(orphans.map(async (orphan) => holds.end(chargeOrphan(orphan))))
    count += ends.filter((end) => end.status === 'fulfilled' && end.value.endedNow).length
    const failures = ends.filter((end) => end.status === 'rejected').map(({ reason }) => reason as unknown)
    if (failures.length > 0) throw new AggregateError(failures, `${failures.length} orphaned holds could not be ended`)
    if (orphans.length < orphansMax) break
  }
  await deleteDeadNodes(database)
  return count
}
