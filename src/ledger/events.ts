import { readClock } from '../db/clock.ts'
import type { Database } from '../db/database.ts'
import { chunkRowsMax, deleteInChunks } from '../db/delete-in-chunks.ts'
import { listPartitions } from './accounts.ts'

/** Longer than a webhook is retried. */
const eventDays = 4
/** An account keeps its newest events, and those that an endpoint still has to get. Endpoints with more of them are disabled. */
export const eventsPerAccountMax = 10_000
/** An event is deleted once this many newer events follow it, even if an endpoint still wants it. */
export const eventsKeptMax = 100_000

/** Deletes events after four days. */
export async function deleteOldEvents(database: Database): Promise<void> {
  const before = new Date((await readClock(database)).getTime() - eventDays * 86_400_000)
  for (const partition of await listPartitions(database)) {
    await deleteInChunks(() =>
      database.query(
        `delete from events e using (
           select x.account_id, x.number from events x where x.partition = $1 and x.created_at < $2
            order by x.created_at limit ${chunkRowsMax}) old
          where e.partition = $1 and e.account_id = old.account_id and e.number = old.number returning 1`,
        [partition, before],
      ),
    )
  }
}

/**
 * Deletes the oldest events of accounts that exceed the limit, except events that an endpoint still has to get. While no account has
 * a live view or an endpoint, it only reads an index.
 */
export async function deleteExcessEvents(
  database: Database,
  { newestMax, keptMax }: EventLimits = { newestMax: eventsPerAccountMax, keptMax: eventsKeptMax },
): Promise<void> {
  const listening = await database.query<{ partition: number }>(
    'select distinct partition from accounts where event_types is not null or watched_until is not null',
  )
  for (const { partition } of listening) {
    await deleteInChunks(() =>
      database.query(
        `delete from events e using (
           select x.account_id, x.number from accounts a
             join events x on x.partition = $1 and x.account_id = a.id and x.number <= a.events - $2
            where a.partition = $1 and (a.event_types is not null or a.watched_until is not null)
              and (x.number <= a.events - $3
                   or not exists (select from webhook_endpoints w
                                   where w.partition = $1 and w.account_id = a.id and w.disabled_at is null and w.sent_to < x.number
                                     and x.type = any (w.types)))
            limit ${chunkRowsMax}) old
          where e.partition = $1 and e.account_id = old.account_id and e.number = old.number returning 1`,
        [partition, newestMax, keptMax],
      ),
    )
  }
}

type EventLimits = { readonly newestMax: number; readonly keptMax: number }
