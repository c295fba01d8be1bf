import { chargeOrphan } from '../billing/charge.ts'
import type { Database } from '../db/database.ts'
import type { Holds } from '../ledger/holds.ts'
import { findOrphanedHolds, forgetDeadNodes } from '../ledger/nodes.ts'

const orphansMax = 500

/**
 * Ends the requests of nodes whose lease is dead: at their last checkpoint, or, without one, as a void. Any node may do it,
 * several at once too: a request ends once. Returns how many were ended.
 */
export async function endOrphanedHolds(database: Database, holds: Holds): Promise<number> {
  let count = 0
  for (;;) {
    const orphans = await findOrphanedHolds(database, orphansMax)
    const ends = await Promise.all(orphans.map((orphan) => holds.end(chargeOrphan(orphan))))
    count += ends.filter((end) => end.endedNow).length
    if (orphans.length < orphansMax) break
  }
  await forgetDeadNodes(database)
  return count
}
