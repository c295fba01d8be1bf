import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Grace } from '../chat/answers.ts'
import { Retries } from '../chat/retries.ts'
import { hasCitus } from '../db/citus.ts'
import { endOrphanedHolds } from '../jobs/end-orphaned-holds.ts'
import { endReopenedHolds, type ReopenedHolds } from '../jobs/end-reopened-holds.ts'
import { every } from '../jobs/every.ts'
import { keepLease } from '../jobs/keep-lease.ts'
import { Holds } from '../ledger/holds.ts'
import type { OrphanedHold } from '../ledger/nodes.ts'
import type { Observer } from '../observe/observer.ts'
import type { Failpoint } from '../process/failpoints.ts'
import type { Databases } from './databases.ts'
import type { StartContext } from './start-context.ts'

const lastWritesMsMax = 10_000
/** Delay until a retry on another node gets the answer of this one. */
const otherNodesMs = 500

export type OpenHoldsParts = {
  readonly databases: Databases
  readonly priceVersion: string
  readonly failpoint: Failpoint
  readonly observer: Observer
}

/** Opens the ledger's writer with this node's lease, and the job that ends the requests of dead nodes. */
export async function openHolds(
  { config, log, stack }: StartContext,
  { databases, priceVersion, failpoint, observer }: OpenHoldsParts,
): Promise<Holds> {
  const database = databases.ledger
  const node = randomUUID()
  const { reopenedHolds, lostHolds, lostCharges } = observer.metrics
  const lease = await keepLease({
    database: databases.lease,
    node,
    leaseMs: config.leaseMs,
    dataDir: config.dataDir,
    onLapsed: () => log.error({ node }, 'the lease expired before it was renewed: other nodes may have ended requests'),
    onError: (error) => log.error({ err: error, node }, 'the lease could not be renewed'),
  })
  stack.defer(() => lease.end().catch((error: unknown) => log.warn({ err: error }, 'the lease could not be released')))
  const holds = new Holds({
    database,
    node,
    priceVersion,
    inFlightCap: config.inFlightCap,
    renewLease: () => lease.renew(),
    spansPartitions: config.ledgerPartitions > 1 && !(await hasCitus(database)),
    onLost: (error) => log.warn({ err: error }, 'a background write to the ledger failed'),
    onHoldLost: ({ requestId, payer, charged }) => {
      lostHolds.add(1)
      lostCharges.add(Number(charged))
      const lost = { requestId, accountId: payer.accountId, notCharged: charged.toString() }
      log.error(lost, 'the database lost the hold of a request, as after a failover: nothing was charged')
    },
    failpoint,
    onBatch: (operation, size, ms) => {
      observer.metrics.batchSize.observe(size, operation)
      observer.metrics.batchSeconds.observe(ms / 1000, operation)
    },
  })
  stack.defer(async () => {
    // Waits for pending writes, but not for an unreachable database: another node will end the open requests.
    await Promise.race([holds.drained(), sleep(lastWritesMsMax, undefined, { ref: false })])
    holds.stop()
  })
  const report = ({ failures, ...reopened }: ReopenedHolds) => {
    for (const [charge, count] of Object.entries(reopened)) if (count > 0) reopenedHolds.add(count, charge)
    const lost = 'the database no longer has the ends of requests that it confirmed (a failover?)'
    if (reopened.same + reopened.checkpoint > 0) log.error(reopened, `${lost}; they were written again`)
    for (const err of failures) log.error({ err }, `${lost}, and one could not be written again`)
  }
  const onUnpriced = ({ requestId, accountId, priceVersion }: OrphanedHold) =>
    log.error(
      { requestId, accountId, priceVersion },
      'the prices of an open request are not in the ledger, so it is voided. Start all processes with the same models',
    )
  const orphans = every(
    Math.ceil(config.leaseMs / 2),
    async () => {
      const withExpired = await lease.renew()
      report(await endReopenedHolds(database, holds, onUnpriced))
      await endOrphanedHolds(database, holds, { withExpired, onUnpriced })
    },
    (error) => log.error({ err: error }, 'orphaned holds could not be ended'),
  )
  stack.defer(() => orphans.stop())
  await orphans.now()
  return holds
}

export type OpenRetriesParts = {
  readonly databases: Databases
  readonly node: string
  readonly grace: Grace
}

/** Writes the answers that retries on other nodes wait for, twice a second. */
export function openRetries({ log, stack }: StartContext, { databases, node, grace }: OpenRetriesParts): Retries {
  const now = () => performance.now()
  const retries = new Retries({ database: databases.lookUps, ledger: databases.ledger, node, grace, now })
  const job = every(
    otherNodesMs,
    () => retries.serveOtherNodes(),
    (error) => log.warn({ err: error }, 'answers for retries on other nodes could not be written'),
  )
  stack.defer(() => job.stop())
  return retries
}
