import { readClock } from '../db/clock.ts'
import type { Database } from '../db/database.ts'
import { listPartitions } from './accounts.ts'

/** Longer than a webhook is retried. */
const eventDays = 4
/** An endpoint that is further behind is disabled: its events could not all be kept. */
export const eventsPerAccountMax = 10_000
export const deletedAtOnce = 10_000

/** Deletes events after four days. */
export async function forgetEvents(database: Database): Promise<void> {
  const before = new Date((await readClock(database)).getTime() - eventDays * 86_400_000)
  for (const partition of await listPartitions(database)) {
    await untilFewer(() =>
      database.query(
        `delete from events e using (
           select x.account_id, x.number from events x where x.partition = $1 and x.created_at < $2
            order by x.created_at limit ${deletedAtOnce}) old
          where e.partition = $1 and e.account_id = old.account_id and e.number = old.number returning 1`,
        [partition, before],
      ),
    )
  }
}

/** Deletes the oldest events of accounts that have more than may be kept. Costs one look at an index while nobody listens. */
export async function trimEvents(database: Database, eventsMax: number = eventsPerAccountMax): Promise<void> {
  const listening = await database.query<{ partition: number }>(
    'select distinct partition from accounts where event_types is not null or watched_until is not null',
  )
  for (const { partition } of listening) {
    await untilFewer(() =>
      database.query(
        `delete from events e using (
           select x.account_id, x.number from accounts a
             join events x on x.partition = $1 and x.account_id = a.id and x.number <= a.events - $2
            where a.partition = $1 and (a.event_types is not null or a.watched_until is not null) limit ${deletedAtOnce}) old
          where e.partition = $1 and e.account_id = old.account_id and e.number = old.number returning 1`,
        [partition, eventsMax],
      ),
    )
  }
}

/** In pieces: one long statement would keep its rows locked, and the database from vacuuming. */
export async function untilFewer(remove: () => Promise<readonly unknown[]>): Promise<void> {
  while ((await remove()).length === deletedAtOnce);
}
