import { type Exclusive, tryExclusive } from '../db/exclusive.ts'
import { Deliverer, type DelivererOptions } from '../webhooks/deliverer.ts'
import { everyAtPace, type Job } from './every.ts'

export type DeliverWebhooksOptions = DelivererOptions & {
  readonly databaseUrl: string
  readonly pace?: Parameters<typeof everyAtPace>[0]
}

/** An event reaches its receiver within about half a second. */
const pace = { busyMs: 250, idleTurns: 2, busyTurns: 40 }

/**
 * Sends webhooks from one process at a time, over all nodes. When that process dies, the database gives the lock to the next one,
 * which continues from the rows.
 */
export function deliverWebhooks(options: DeliverWebhooksOptions): Job {
  let alone: Exclusive | undefined
  let deliverer: Deliverer | undefined
  const begin = async () => {
    const lock = await tryExclusive(options.databaseUrl, 'webhooks')
    if (lock === undefined) return
    const own = new Deliverer(options)
    alone = lock
    deliverer = own
    void lock.lost.then(() => {
      if (alone === lock) [alone, deliverer] = [undefined, undefined]
      return own.stop()
    })
  }
  const job = everyAtPace(
    options.pace ?? pace,
    async () => {
      if (deliverer === undefined) await begin()
      return (await deliverer?.deliverDue()) ?? false
    },
    options.onError,
  )
  return {
    now: () => job.now(),
    async stop() {
      await job.stop()
      await deliverer?.stop()
      await alone?.release()
    },
  }
}
