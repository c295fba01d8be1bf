import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { Shares } from '../fairness/shares.ts'
import { type Balance, readBalance } from '../ledger/balance.ts'
import { type ListedDeposit, listDeposits } from '../ledger/deposits.ts'
import { listRequests } from '../ledger/request-log.ts'
import { findRequest, type LedgerRequest } from '../ledger/requests.ts'
import { listWithdrawals, type Withdrawal } from '../ledger/withdrawals.ts'

export type FeedEvent =
  | { readonly type: 'balance'; readonly balance: Balance }
  | { readonly type: 'request'; readonly change: 'started' | 'ended' | 'refused'; readonly request: LedgerRequest }
  | { readonly type: 'deposit'; readonly deposit: ListedDeposit }
  | { readonly type: 'withdrawal'; readonly withdrawal: Withdrawal }

export type Listener = (event: FeedEvent) => void

export type AccountFeedsOptions = {
  readonly database: Database
  readonly onError: (error: unknown) => void
  readonly everyMs?: number
}

const listenersMax = 2_000
const listenersPerAccountMax = 20
const newestMax = 50
const rememberedMax = 500
const openMax = 100

/**
 * What happens in the accounts that somebody looks at. One small statement a second asks for all of them at once whether
 * anything has changed; only where it has is more read. So it costs next to nothing to look, on any number of nodes.
 */
export class AccountFeeds {
  readonly #options: Required<AccountFeedsOptions>
  readonly #feeds = new Map<string, Feed>()
  #timer: NodeJS.Timeout | undefined
  readonly #places = new Shares({ what: 'live feeds', capacity: listenersMax, accountMax: listenersPerAccountMax })

  constructor(options: AccountFeedsOptions) {
    this.#options = { everyMs: 1_000, ...options }
  }

  /** Tells the listener of every change from now on, until it is told to stop. */
  async watch(account: AccountRef, listener: Listener): Promise<() => void> {
    const feed = this.#feeds.get(account.accountId) ?? new Feed(this.#options, account)
    this.#places.acquire(account.accountId)
    this.#feeds.set(account.accountId, feed)
    feed.listeners.add(listener)
    this.#timer ??= setTimeout(() => void this.#look(), this.#options.everyMs).unref()
    try {
      await feed.begun
    } catch (error) {
      this.#leave(feed, listener)
      throw error
    }
    return () => this.#leave(feed, listener)
  }

  #leave(feed: Feed, listener: Listener): void {
    if (!feed.listeners.delete(listener)) return
    this.#places.release(feed.account.accountId)
    if (feed.listeners.size === 0) this.#feeds.delete(feed.account.accountId)
  }

  async #look(): Promise<void> {
    try {
      const marks = await readMarks(this.#options.database, [...this.#feeds.keys()])
      // Each for itself: what goes wrong with one account, or with one of its listeners, is not the others' business.
      for (const [accountId, mark] of marks) await this.#feeds.get(accountId)?.notice(mark).catch(this.#options.onError)
    } catch (error) {
      this.#options.onError(error)
    } finally {
      this.#timer =
        this.#feeds.size === 0 ? undefined : setTimeout(() => void this.#look(), this.#options.everyMs).unref()
    }
  }
}

/** One account, what was last told of it, and to whom. */
class Feed {
  readonly account: AccountRef
  readonly listeners = new Set<Listener>()
  /** Resolves when it is known what there was at the beginning. */
  readonly begun: Promise<void>
  readonly #database: Database
  readonly #onError: (error: unknown) => void
  #mark: string | undefined
  #statuses = new Map<string, LedgerRequest['status']>()
  #transfers = new Map<string, string>()

  constructor({ database, onError }: Required<AccountFeedsOptions>, account: AccountRef) {
    this.#database = database
    this.#onError = onError
    this.account = account
    this.begun = this.#changes().then(() => undefined)
  }

  /** The mark is another one when anything may have changed. */
  async notice(mark: string): Promise<void> {
    if (mark === this.#mark) return
    await this.begun
    const balance = await readBalance(this.#database, this.account)
    this.#tell([{ type: 'balance', balance }, ...(await this.#changes())])
    this.#mark = mark
  }

  #tell(events: readonly FeedEvent[]): void {
    for (const listener of this.listeners) {
      try {
        for (const event of events) listener(event)
      } catch (error) {
        this.#onError(error)
      }
    }
  }

  async #changes(): Promise<readonly FeedEvent[]> {
    const [requests, deposits, withdrawals] = await Promise.all([
      this.#readRequests(),
      listDeposits(this.#database, this.account, { limit: newestMax }),
      listWithdrawals(this.#database, this.account, { limit: newestMax }),
    ])
    const events: FeedEvent[] = []
    for (const request of requests) {
      const { status } = request
      if (this.#statuses.get(request.id) === status) continue
      this.#statuses.set(request.id, status)
      const change = status === 'held' ? 'started' : status === 'refused' ? 'refused' : 'ended'
      events.push({ type: 'request', change, request })
    }
    for (const deposit of deposits) {
      if (this.#isNews(`deposit ${deposit.id}`, deposit.state)) events.push({ type: 'deposit', deposit })
    }
    for (const withdrawal of withdrawals) {
      if (this.#isNews(withdrawal.id, withdrawal.state)) events.push({ type: 'withdrawal', withdrawal })
    }
    this.#statuses = newest(this.#statuses)
    this.#transfers = newest(this.#transfers)
    return events
  }

  /** The newest, oldest of them first, after those that were under way and have grown old meanwhile. */
  async #readRequests(): Promise<readonly LedgerRequest[]> {
    const { partition, accountId } = this.account
    const { rows } = await listRequests(this.#database, this.account, {}, { limit: newestMax })
    const shown = new Set<string>(rows.map(({ id }) => id))
    const open = [...this.#statuses].filter(([id, status]) => status === 'held' && !shown.has(id)).slice(-openMax)
    const older = await Promise.all(
      open.map(([id]) => findRequest(this.#database, partition, accountId, id as LedgerRequest['id'])),
    )
    return [...older.filter((row) => row !== undefined), ...rows.toReversed()]
  }

  #isNews(id: string, state: string): boolean {
    if (this.#transfers.get(id) === state) return false
    this.#transfers.set(id, state)
    return true
  }
}

/** Maps keep the order of their making: the last so many. */
function newest<Value>(remembered: Map<string, Value>): Map<string, Value> {
  return remembered.size <= rememberedMax ? remembered : new Map([...remembered].slice(-rememberedMax))
}

/**
 * What differs as soon as anything did. Every hold, end and deposit writes the account's row, which gives it another
 * transaction number; refusals, arrivals and withdrawals under way do not, and are asked for beside it.
 */
async function readMarks(database: Database, accountIds: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const rows = await database.queryPrepared<{ id: string; mark: string }>(
    'read_feed_marks',
    `select a.id, concat_ws(' ', a.xmin,
              (select r.id from requests r where r.account_id = a.id and r.status <> 'succeeded'
                order by r.id desc limit 1),
              (select max(v.seen_at) from arrivals v where v.partition = a.partition and v.account_id = a.id),
              (select string_agg(s.id::text || s.state, ',' order by s.id) from sweeps s
                where s.partition = a.partition and s.account_id = a.id and s.state in ('planned', 'sent', 'confirmed')),
              (select max(w.changed_at) from withdrawals w where w.partition = a.partition and w.account_id = a.id)) as mark
       from accounts a where a.id = any ($1::uuid[])`,
    [accountIds],
  )
  return new Map(rows.map(({ id, mark }) => [id, mark]))
}
