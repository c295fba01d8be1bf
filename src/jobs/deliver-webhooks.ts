import { hasCitus } from '../db/citus.ts'
import { type Exclusive, tryExclusive } from '../db/exclusive.ts'
import { Deliverer, type DelivererOptions } from '../webhooks/deliverer.ts'
import { everyAtPace, type Job } from './every.ts'

export type DeliverWebhooksOptions = DelivererOptions & {
  readonly databaseUrl: string
  readonly pace?: Parameters<typeof everyAtPace>[0]
}

/** An event wakes the deliverer (`wake_endpoints`). It looks by itself for retries, and for events whose notification was lost. */
const pace = { busyMs: 250, idleTurns: 8, busyTurns: 8 }
/** A worker of a cluster wakes no deliverer: an event reaches its receiver within about half a second. */
const clusterIdleTurns = 2

/**
 * Sends webhooks from one process at a time, over all nodes. When that process dies, the database gives the lock to the next one,
 * which continues from the rows.
 */
export function deliverWebhooks(options: DeliverWebhooksOptions): Job {
  let alone: Exclusive | undefined
  let deliverer: Deliverer | undefined
  let { idleTurns } = pace
  const begin = async () => {
    const lock = await tryExclusive(options.databaseUrl, 'webhooks', { onWoken: () => job.wake() })
    if (lock === undefined) return
    if (await hasCitus(options.database)) idleTurns = clusterIdleTurns
    const own = new Deliverer(options)
    alone = lock
    deliverer = own
    void lock.lost.then(() => {
      if (alone === lock) [alone, deliverer] = [undefined, undefined]
      return own.stop()
    })
  }
  const job = everyAtPace(
    options.pace ?? {
      ...pace,
      get idleTurns() {
        return idleTurns
      },
    },
    async () => {
      if (deliverer === undefined) await begin()
      return (await deliverer?.deliverDue()) ?? false
    },
    options.onError,
  )
  return {
    now: () => job.now(),
    wake: () => job.wake(),
    async stop() {
      await job.stop()
      await deliverer?.stop()
      await alone?.release()
    },
  }
}
