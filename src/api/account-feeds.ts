import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { Shares } from '../fairness/shares.ts'
import { type Balance, readBalance } from '../ledger/balance.ts'
import { type ListedDeposit, listDeposits } from '../ledger/deposits.ts'
import type { RequestId } from '../ledger/request-id.ts'
import { findRequests, type LedgerRequest } from '../ledger/requests.ts'
import { withdrawalStateOf } from '../ledger/states.ts'
import type { Transfer } from '../ledger/transfers.ts'
import {
  type ListedEvent,
  readLastEvents,
  readNewestEvents,
  type Watch,
  watchAccounts,
} from '../ledger/watched-accounts.ts'
import { listWithdrawals } from '../ledger/withdrawals.ts'

export type FeedEvent =
  | { readonly type: 'balance'; readonly balance: Balance }
  | { readonly type: 'request'; readonly change: 'started' | 'ended' | 'refused'; readonly request: LedgerRequest }
  | { readonly type: 'deposit'; readonly deposit: ListedDeposit }
  | { readonly type: 'withdrawal'; readonly withdrawal: Transfer }
  /** Changes were skipped: the listener must reload what it shows. */
  | { readonly type: 'missed' }

/** Receives changes in order. After them the listener is up to date with event `number` and can resume there. */
export type Listener = (events: readonly FeedEvent[], number: bigint) => void

export type AccountFeedsOptions = {
  readonly database: Database
  readonly onError: (error: unknown) => void
  readonly everyMs?: number
  readonly renewMs?: number
}

export type Subscription = {
  /** The listener is up to date with this event. */
  readonly number: bigint
  /** Whether all changes after the requested event were delivered. */
  readonly isResumed: boolean
  stop(): void
}

const listenersMax = 2_000
const listenersPerAccountMax = 20
const newestMax = 50
const rememberedMax = 500
/** Events of one account per read, and requests that they are about. Older ones are skipped. */
const eventsMax = 500
const requestsMax = 500
/** Requests that one catches up with. More of them do not fit into what a stream may hold before its client reads (`stream.ts`). */
const caughtUpMax = 100

/**
 * Changes of accounts with an open live view, read from the ledger's events. One statement per second reads the last event number of
 * all these accounts; more is read only for accounts with a new event. While an account has a listener on any node, all its events are
 * written (`watch_accounts`).
 */
export class AccountFeeds {
  readonly #options: Required<AccountFeedsOptions>
  readonly #feeds = new Map<string, Feed>()
  #timer: NodeJS.Timeout | undefined
  #renewedAt = 0
  readonly #places = new Shares({ what: 'live feeds', capacity: listenersMax, accountMax: listenersPerAccountMax })

  constructor(options: AccountFeedsOptions) {
    this.#options = { everyMs: 1_000, renewMs: 30_000, ...options }
  }

  /**
   * Delivers every change to the listener until it is stopped. With `after`, first the changes after that event, as far as they are
   * known.
   */
  async watch(account: AccountRef, listener: Listener, after?: bigint): Promise<Subscription> {
    this.#places.acquire(account.accountId)
    const feed = this.#feeds.get(account.accountId) ?? new Feed(this.#options, account)
    this.#feeds.set(account.accountId, feed)
    feed.waiting += 1
    this.#timer ??= setTimeout(() => void this.#look(), this.#options.everyMs).unref()
    const leave = () => {
      this.#places.release(account.accountId)
      if (feed.listeners.size + feed.waiting === 0 && this.#feeds.get(account.accountId) === feed)
        this.#feeds.delete(account.accountId)
    }
    try {
      await feed.begun
      feed.listeners.set(listener, { behind: undefined })
      feed.waiting -= 1
      const isResumed = after !== undefined && (await feed.catchUp(listener, after))
      return {
        number: feed.number,
        isResumed,
        stop: () => {
          if (feed.listeners.delete(listener)) leave()
        },
      }
    } catch (error) {
      if (!feed.listeners.delete(listener)) feed.waiting -= 1
      leave()
      throw error
    }
  }

  async #look(): Promise<void> {
    try {
      const feeds = [...this.#feeds.values()]
      await this.#renew(feeds).catch(this.#options.onError)
      const numbers = await readLastEvents(
        this.#options.database,
        feeds.map(({ account }) => account),
      )
      // Isolated: an error of one account or listener must not affect the others.
      for (const feed of feeds)
        await feed.follow(numbers.get(feed.account.accountId) ?? 0n).catch(this.#options.onError)
    } catch (error) {
      this.#options.onError(error)
    } finally {
      this.#timer =
        this.#feeds.size === 0 ? undefined : setTimeout(() => void this.#look(), this.#options.everyMs).unref()
    }
  }

  async #renew(feeds: readonly Feed[]): Promise<void> {
    if (performance.now() - this.#renewedAt < this.#options.renewMs) return
    const watches = await watchAccounts(
      this.#options.database,
      feeds.map(({ account }) => account),
    )
    for (const watch of watches) this.#feeds.get(watch.accountId)?.renewed(watch)
    this.#renewedAt = performance.now()
  }
}

/** One account with its listeners. */
class Feed {
  readonly account: AccountRef
  readonly listeners = new Map<Listener, { behind: [events: readonly FeedEvent[], number: bigint][] | undefined }>()
  /** Listeners that wait for `begun`. */
  waiting = 0
  /** Resolves when the events of the account are being written, and its state before the first of them was read. */
  readonly begun: Promise<void>
  readonly #database: Database
  readonly #onError: (error: unknown) => void
  #watchedFrom = 0n
  #number = 0n
  #hasMissed = false
  /** Requests whose end was delivered before the event of their end was read. */
  #endedEarly = new Set<RequestId>()
  #transfers = new Map<string, string>()

  constructor({ database, onError }: Required<AccountFeedsOptions>, account: AccountRef) {
    this.#database = database
    this.#onError = onError
    this.account = account
    this.begun = this.#begin()
  }

  async #begin(): Promise<void> {
    const [watch] = await watchAccounts(this.#database, [this.account])
    this.#number = watch!.lastEvent
    this.#watchedFrom = watch!.watchedFrom
    await this.#readTransfers(['deposit', 'withdrawal'])
  }

  /** Everything up to this event was delivered. */
  get number(): bigint {
    return this.#number
  }

  /**
   * Delivers to one listener the changes after an event that the others already have. Changes that arrive meanwhile follow. Returns false
   * when those changes are no longer available, or too many.
   */
  async catchUp(listener: Listener, after: bigint): Promise<boolean> {
    const to = this.#number
    if (after === to) return true
    if (after < this.#watchedFrom || after > to) return false
    const state = this.listeners.get(listener)!
    state.behind = []
    const { events, requestIds, isWhole } = await this.#readEvents(after, to)
    if (requestIds.length > caughtUpMax) {
      state.behind = undefined
      return false
    }
    const page = { limit: newestMax }
    const [balance, requests, deposits, withdrawals] = await Promise.all([
      readBalance(this.#database, this.account),
      this.#readRequests(requestIds),
      has(events, 'deposit.') ? listDeposits(this.#database, this.account, page) : [],
      has(events, 'withdrawal.') ? listWithdrawals(this.#database, this.account, page) : [],
    ])
    const changes: FeedEvent[] = [
      { type: 'balance', balance },
      ...requests.map(requestEvent),
      ...deposits.toReversed().map((deposit) => ({ type: 'deposit', deposit }) as const),
      ...withdrawals.toReversed().map((withdrawal) => ({ type: 'withdrawal', withdrawal }) as const),
    ]
    listener(changes, to)
    for (const [later, number] of state.behind) listener(later, number)
    state.behind = undefined
    return isWhole
  }

  /** A new start of the watch means that events were not written in between. */
  renewed({ watchedFrom }: Watch): void {
    if (watchedFrom === this.#watchedFrom) return
    this.#hasMissed = true
    this.#watchedFrom = watchedFrom
  }

  /** Delivers changes up to this event. */
  async follow(to: bigint): Promise<void> {
    await this.begun
    if (to === this.#number && !this.#hasMissed) return
    const { events, requestIds, endedIds, isWhole } = await this.#readEvents(this.#number, to)
    const kinds = (['deposit', 'withdrawal'] as const).filter((kind) => has(events, `${kind}.`))
    const requests = await this.#readRequests(this.#withoutDelivered(requestIds))
    const changes: FeedEvent[] = [
      { type: 'balance', balance: await readBalance(this.#database, this.account) },
      ...requests.map(requestEvent),
      ...(await this.#readTransfers(kinds)),
    ]
    this.#rememberDelivered(requests, endedIds)
    if (!isWhole || this.#hasMissed) changes.push({ type: 'missed' })
    // A restored database counts from an earlier number.
    this.#number = to
    this.#hasMissed = false
    this.#deliver(changes)
  }

  #deliver(changes: readonly FeedEvent[]): void {
    for (const [listener, { behind }] of this.listeners) {
      try {
        if (behind === undefined) listener(changes, this.#number)
        else behind.push([changes, this.#number])
      } catch (error) {
        this.#onError(error)
      }
    }
  }

  async #readEvents(after: bigint, to: bigint): Promise<ReadEvents> {
    const events = await readNewestEvents(this.#database, this.account, { after, to, limit: eventsMax })
    const newestFirst = new Set(events.flatMap((event) => event.requestIds).reverse())
    const hasAllEvents = to >= after && BigInt(events.length) === to - after
    const hasAllRequests = events.every((event) => event.requests === event.requestIds.length)
    return {
      events,
      requestIds: [...newestFirst].slice(0, requestsMax),
      endedIds: new Set(events.filter(({ type }) => type !== 'requests.started').flatMap((event) => event.requestIds)),
      isWhole: hasAllEvents && hasAllRequests && newestFirst.size <= requestsMax,
    }
  }

  /** Current rows: a request that has ended since its event is delivered as ended. */
  async #readRequests(ids: readonly RequestId[]): Promise<readonly LedgerRequest[]> {
    return ids.length === 0 ? [] : findRequests(this.#database, this.account, ids)
  }

  #withoutDelivered(ids: readonly RequestId[]): readonly RequestId[] {
    return ids.filter((id) => !this.#endedEarly.delete(id))
  }

  #rememberDelivered(requests: readonly LedgerRequest[], endedIds: ReadonlySet<RequestId>): void {
    for (const { id, status } of requests) if (status !== 'held' && !endedIds.has(id)) this.#endedEarly.add(id)
    this.#endedEarly = new Set([...this.#endedEarly].slice(-rememberedMax))
  }

  /** Deposits and withdrawals whose state has changed since the last read. */
  async #readTransfers(kinds: readonly ('deposit' | 'withdrawal')[]): Promise<readonly FeedEvent[]> {
    const page = { limit: newestMax }
    const [deposits, withdrawals] = await Promise.all([
      kinds.includes('deposit') ? listDeposits(this.#database, this.account, page) : [],
      kinds.includes('withdrawal') ? listWithdrawals(this.#database, this.account, page) : [],
    ])
    const events: FeedEvent[] = []
    for (const deposit of deposits) {
      if (this.#isNews(`deposit ${deposit.id}`, deposit.state)) events.push({ type: 'deposit', deposit })
    }
    for (const withdrawal of withdrawals) {
      if (this.#isNews(withdrawal.id, withdrawalStateOf(withdrawal.state)))
        events.push({ type: 'withdrawal', withdrawal })
    }
    if (this.#transfers.size > rememberedMax) this.#transfers = new Map([...this.#transfers].slice(-rememberedMax))
    return events
  }

  #isNews(id: string, state: string): boolean {
    if (this.#transfers.get(id) === state) return false
    this.#transfers.set(id, state)
    return true
  }
}

type ReadEvents = {
  readonly events: readonly ListedEvent[]
  /** Requests whose current state is sent: at most `requestsMax`. */
  readonly requestIds: readonly RequestId[]
  /** The requests whose end is among the events. */
  readonly endedIds: ReadonlySet<RequestId>
  readonly isWhole: boolean
}

function requestEvent(request: LedgerRequest): FeedEvent {
  const { status } = request
  const change = status === 'held' ? 'started' : status === 'refused' ? 'refused' : 'ended'
  return { type: 'request', change, request }
}

function has(events: readonly ListedEvent[], prefix: string): boolean {
  return events.some(({ type }) => type.startsWith(prefix))
}
