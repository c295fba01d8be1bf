import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { rowsOf } from '../db/rows.ts'
import { parseRequestId, type RequestId } from './request-id.ts'

/** How long events are written after the last renewal: time for a browser to reconnect, and for a node to survive a failover. */
const watchSeconds = 120
/** Accounts that are locked together. Few, so that requests of a large account wait a moment only. */
const lockedTogether = 100

export type Watch = {
  readonly accountId: string
  /** Number of the newest event. */
  readonly lastEvent: bigint
  /** Every later event has been written. It changes when the watch had ended in between. */
  readonly watchedFrom: bigint
}

/**
 * From now on, every event of these accounts is written. Earlier commits can be read when this returns; later ones are
 * events. Must be renewed more often than every two minutes.
 */
export async function watchAccounts(database: Database, accounts: readonly AccountRef[]): Promise<readonly Watch[]> {
  const watches: Watch[] = []
  for (const [partition, of] of Map.groupBy(accounts, (account) => account.partition)) {
    for (let first = 0; first < of.length; first += lockedTogether) {
      const ids = of.slice(first, first + lockedTogether).map(({ accountId }) => accountId)
      const rows = await rowsOf<Watch>(
        database.query('select account_id, last_event, watched_from from watch_accounts($1, $2::uuid[], $3)', [
          partition,
          ids,
          watchSeconds,
        ]),
      )
      watches.push(...rows)
    }
  }
  return watches
}

/** Whether a live view is open of an account with a deposit address: its holder may wait for a deposit. */
export async function isDepositAwaited(database: Database): Promise<boolean> {
  const rows = await database.queryPrepared(
    'is_deposit_awaited',
    'select 1 from accounts where watched_until > clock_timestamp() and address is not null limit 1',
    [],
  )
  return rows.length > 0
}

/** Ends watches that were not renewed. */
export async function endStaleWatches(database: Database): Promise<void> {
  const stale = await database.query<{ partition: number; id: string }>(
    'select partition, id from accounts where watched_until <= now()',
  )
  for (const [partition, of] of Map.groupBy(stale, (account) => account.partition)) {
    for (let first = 0; first < of.length; first += lockedTogether) {
      const ids = of.slice(first, first + lockedTogether).map(({ id }) => id)
      await database.query('select unwatch_accounts($1, $2::uuid[])', [partition, ids])
    }
  }
}

/** The number of the newest event, by account. */
export async function readLastEvents(
  database: Database,
  accounts: readonly AccountRef[],
): Promise<ReadonlyMap<string, bigint>> {
  const rows = await database.queryPrepared<{ id: string; events: bigint }>(
    'read_last_events',
    `select a.id, a.events from unnest($1::smallint[], $2::uuid[]) as w (partition, id)
       join accounts a on a.partition = w.partition and a.id = w.id`,
    [accounts.map(({ partition }) => partition), accounts.map(({ accountId }) => accountId)],
  )
  return new Map(rows.map(({ id, events }) => [id, events]))
}

export type EventRange = {
  /** Exclusive. */
  readonly after: bigint
  readonly to: bigint
  readonly limit: number
}

export type ListedEvent = {
  readonly type: string
  /** Requests that the event is about; the newest of them when there are too many. */
  readonly requestIds: readonly RequestId[]
  /** How many there are. */
  readonly requests: number
}

/** The newest events of the range, oldest of them first. */
export async function readNewestEvents(
  database: Database,
  { partition, accountId }: AccountRef,
  { after, to, limit }: EventRange,
): Promise<readonly ListedEvent[]> {
  const rows = await rowsOf<EventRow>(
    database.queryPrepared(
      'read_newest_events',
      `select id, type, data ->> 'id' as object_id, data -> 'ids' as ids, (data ->> 'count')::int as count from events
      where partition = $1 and account_id = $2 and number > $3 and number <= $4 order by number desc limit $5`,
      [partition, accountId, after, to, limit],
    ),
  )
  return rows.map(readEvent).reverse()
}

type EventRow = {
  readonly id: string
  readonly type: string
  readonly objectId: string | undefined
  readonly ids: readonly RequestId[] | undefined
  readonly count: number | undefined
}

function readEvent({ id, type, objectId, ids, count }: EventRow): ListedEvent {
  if (type.startsWith('requests.')) return { type, requestIds: ids!, requests: count! }
  if (type === 'request.ended') return { type, requestIds: [id as RequestId], requests: 1 }
  const requestIds = type.startsWith('request.') ? [parseRequestId(objectId!)!] : []
  return { type, requestIds, requests: requestIds.length }
}
