import { readClock } from '../db/clock.ts'
import type { Database } from '../db/database.ts'
import { lockAccount } from '../db/lock-account.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import { Shares } from '../fairness/shares.ts'
import { eventsKeptMax, eventsPerAccountMax } from '../ledger/events.ts'
import type { Failpoint, WebhookFailpointName } from '../process/failpoints.ts'
import type { SafePost } from '../tools/safe-post.ts'
import {
  type Delivery,
  type DeliveryAttempt,
  deliveriesPerEndpointMax,
  deliveryColumns,
  formatEventId,
  renderBody,
  type WebhookEvent,
} from './deliveries.ts'
import {
  type DisabledReason,
  disableEndpoint,
  type EndpointRow,
  endpointColumns,
  readEndpoint,
  type WebhookEndpoint,
} from './endpoints.ts'
import { signedHeaders } from './signature.ts'

export type DelivererOptions = {
  readonly database: Database
  readonly post: SafePost
  readonly failpoint?: Failpoint | undefined
  readonly onDisabled: (endpoint: WebhookEndpoint, reason: DisabledReason) => void
  readonly onAttempt: (isDelivered: boolean) => void
  readonly onError: (error: unknown) => void
}

/**
 * How many endpoints are called concurrently, by lane. Lanes do not wait for each other. `fast`: the last attempt was answered within a
 * second. `slow`: new, slow or dead endpoints. `unpaid`: those of accounts that never deposited: such accounts are free, so any number of
 * them can be opened to fill a lane.
 */
const lanesMax = { fast: 48, slow: 16, unpaid: 8 } as const
type Lane = keyof typeof lanesMax
const laneNames = Object.keys(lanesMax) as Lane[]
const slowMs = 1_000
/** Maximum events and time per turn of an endpoint; then other endpoints come first. */
const turnMax = 50
const turnMsMax = 2_000
/** Candidates that are read per lane: more than its places, because some belong to accounts that already use their share. */
const candidatesMax = 64
const attemptsKeptMax = 20
const answerLengthMax = 1_000
const minuteMs = 60_000
const retryMs = [5_000, 30_000, ...[2, 10, 30, 60, 120, 240, 480, 720].map((minutes) => minutes * minuteMs)]
/** A dead endpoint is tried at least this often, so that it gets its events soon after it recovers. */
const pauseMsMax = 15 * minuteMs
const retriedMsMax = 3 * 24 * 60 * minuteMs

/** Retry delay by number of failures, with 10 % jitter so that endpoints of one host are not retried together. */
export function retryDelayMs(failures: number, random: number): number {
  const ms = retryMs[Math.min(failures, retryMs.length) - 1] ?? 0
  return Math.round(ms * (0.9 + 0.2 * random))
}

/** How long an endpoint pauses after its first failure in a row, after its second, and so on. */
function pausesMs(): readonly number[] {
  const random = Math.random()
  return retryMs.map((_, failures) => Math.min(retryDelayMs(failures + 1, random), pauseMsMax))
}

/**
 * Sends events to webhook endpoints: to each endpoint one at a time, in the order of its account's events. A failed delivery is retried
 * later and does not delay newer events. Accounts are served in turn, and none may use more than its share of the places. An attempt is
 * stored after it has ended, so the successor of a process that died repeats it. Only one process at a time may run it: two would send
 * everything twice.
 */
export class Deliverer {
  readonly #options: DelivererOptions
  readonly #stopped = new AbortController()
  /** By endpoint id. */
  readonly #turns = new Map<string, Promise<void>>()
  readonly #places: Readonly<Record<Lane, Shares>>

  constructor(options: DelivererOptions) {
    this.#options = options
    const places = (lane: Lane) => new Shares({ what: `places of ${lane} webhooks`, capacity: lanesMax[lane] })
    this.#places = { fast: places('fast'), slow: places('slow'), unpaid: places('unpaid') }
  }

  #failpoint(name: WebhookFailpointName): void {
    this.#options.failpoint?.(name)
  }

  /** Starts deliveries to the endpoints that are due. Returns whether any delivery is in progress. */
  async deliverDue(): Promise<boolean> {
    if (laneNames.some((lane) => this.#places[lane].used < lanesMax[lane])) {
      for (const { endpoint, lane } of await this.#findDue()) this.#begin(endpoint, lane)
    }
    return this.#turns.size > 0
  }

  /** Resolves when all running turns have ended. */
  async drained(): Promise<void> {
    await Promise.all(this.#turns.values())
  }

  /** Aborts running attempts. The next deliverer repeats them. */
  async stop(): Promise<void> {
    this.#stopped.abort()
    await this.drained()
  }

  #begin(endpoint: WebhookEndpoint, lane: Lane): void {
    const { id, accountId } = endpoint
    const places = this.#places[lane]
    if (this.#stopped.signal.aborted || this.#turns.has(id) || places.refusal(accountId) !== undefined) return
    places.acquire(accountId)
    const over = this.#turn(endpoint)
      .catch((error: unknown) => {
        if (!this.#stopped.signal.aborted) this.#options.onError(error)
      })
      .finally(() => {
        this.#turns.delete(id)
        places.release(accountId)
      })
    this.#turns.set(id, over)
  }

  async #findDue(): Promise<readonly { readonly endpoint: WebhookEndpoint; readonly lane: Lane }[]> {
    const rows = await rowsOf<EndpointRow & { lane: Lane }>(
      this.#options.database.queryPrepared('find_due_webhooks', findDue, [[...this.#turns.keys()], candidatesMax]),
    )
    return rows.map(({ lane, ...row }) => ({ endpoint: readEndpoint(row), lane }))
  }

  async #turn(endpoint: WebhookEndpoint): Promise<void> {
    const until = performance.now() + turnMsMax
    for (let sent = 0; sent < turnMax && performance.now() < until; sent += 1) {
      if (this.#stopped.signal.aborted) return
      const next = await this.#next(endpoint, sent === 0)
      if (next === undefined) return
      if (next === 'behind') return this.#disable(endpoint, 'behind')
      const outcome = await this.#send(next.endpoint, next.event)
      const isOver = await this.#record(next.endpoint, next, outcome)
      if (isOver) return
    }
  }

  /** First a retry that is due, then the next event. The endpoint is read again each time: it may have been changed. */
  async #next({ partition, accountId, id }: WebhookEndpoint, isFirst: boolean): Promise<Next | 'behind' | undefined> {
    const { database } = this.#options
    const row = await rowOf<EndpointRow & EndpointProgress>(
      database.queryPrepared(
        'find_webhook_endpoint',
        `select ${endpointColumns}, e.sent_to, a.events,
              (select count(*) from webhook_deliveries d where d.partition = $1 and d.endpoint_id = $2 and d.state = 'waiting') as waiting
         from webhook_endpoints e join accounts a on a.partition = $1 and a.id = e.account_id
        where e.partition = $1 and e.id = $2 and e.disabled_at is null`,
        [partition, id],
      ),
    )
    if (row === undefined) return undefined
    const { sentTo, events, waiting: waitingCount, ...stored } = row
    const endpoint = readEndpoint(stored)
    // Checked before retries: an endpoint that always fails would never reach this check.
    if (isFirst && (await this.#isBehind(endpoint, { after: sentTo, to: events }))) return 'behind'
    const waiting = await rowOf<Delivery>(
      database.queryPrepared(
        'find_waiting_webhook',
        `select ${deliveryColumns} from webhook_deliveries
        where partition = $1 and endpoint_id = $2 and state = 'waiting' and due_at <= now() order by due_at, event_id limit 1`,
        [partition, id],
      ),
    )
    if (waiting !== undefined) return { endpoint, event: waiting, attempts: waiting.attempts }
    if (waitingCount >= BigInt(deliveriesPerEndpointMax)) return this.#pause(endpoint, undefined)
    const event = await rowOf<WebhookEvent>(
      database.queryPrepared('find_next_webhook_event', findNextEvent, [
        partition,
        accountId,
        sentTo,
        events,
        endpoint.types,
      ]),
    )
    return event === undefined ? this.#pause(endpoint, events) : { endpoint, event, attempts: [] }
  }

  /** There is nothing to send now. `seen` is the last event that was looked at; undefined: new events have to wait. */
  async #pause({ partition, accountId, id }: WebhookEndpoint, seen: bigint | undefined): Promise<undefined> {
    const values = [partition, accountId, id, seen ?? null, pauseMsMax]
    await this.#options.database.query('select pause_endpoint($1, $2, $3, $4, $5)', values)
  }

  /** Whether more events wait for it than are kept. Skips events that it does not subscribe to: other types, and the live view's. */
  async #isBehind(endpoint: WebhookEndpoint, { after, to }: EventRange): Promise<boolean> {
    if (to - after <= BigInt(eventsPerAccountMax)) return false
    const { partition, accountId, types } = endpoint
    const wanted = await rowOf<{ readonly first: bigint | undefined; readonly count: bigint }>(
      this.#options.database.query(
        `select min(w.number) as first, count(*) as count
         from (select number from events
                where partition = $1 and account_id = $2 and number > $3 and number <= $4 and type = any ($5::text[])
                order by number limit $6) w`,
        [partition, accountId, after, to, types, eventsPerAccountMax + 1],
      ),
    )
    const { first, count } = wanted!
    await this.#skipTo(endpoint, first === undefined ? to : first - 1n)
    return count > BigInt(eventsPerAccountMax) || (first !== undefined && to - first >= BigInt(eventsKeptMax))
  }

  async #skipTo({ partition, id }: WebhookEndpoint, number: bigint): Promise<void> {
    await this.#options.database.query(
      'update webhook_endpoints set sent_to = greatest(sent_to, $3) where partition = $1 and id = $2',
      [partition, id, number],
    )
  }

  async #send(endpoint: WebhookEndpoint, event: WebhookEvent): Promise<DeliveryAttempt> {
    const now = Date.now()
    const began = performance.now()
    const body = renderBody(endpoint, event)
    const oldSecrets = endpoint.oldSecrets.filter(({ until }) => until.getTime() > now)
    const secrets = [endpoint.secret, ...oldSecrets.map(({ secret }) => secret)]
    const message = { id: formatEventId(event.eventId), timestamp: Math.floor(now / 1000), body }
    const headers = {
      'content-type': 'application/json',
      ...signedHeaders(secrets, message),
    }
    const done = (outcome: Pick<DeliveryAttempt, 'status' | 'error' | 'answer'>): DeliveryAttempt => ({
      at: new Date(now).toISOString(),
      ...outcome,
      duration_ms: Math.round(performance.now() - began),
    })
    try {
      this.#failpoint('before_webhook_send')
      const answer = await this.#options.post(
        new URL(endpoint.url),
        { headers, body, sender: endpoint.id },
        this.#stopped.signal,
      )
      this.#failpoint('after_webhook_send')
      // PostgreSQL's text has no NUL.
      const text = answer.text.replaceAll('\0', '\uFFFD').slice(0, answerLengthMax).toWellFormed()
      return done({ status: answer.status, error: null, answer: text })
    } catch (error) {
      this.#stopped.signal.throwIfAborted()
      return done({ status: null, error: (error as Error).message, answer: '' })
    }
  }

  /** Returns whether the endpoint's turn has ended. */
  async #record(endpoint: WebhookEndpoint, { event, attempts }: Next, attempt: DeliveryAttempt): Promise<boolean> {
    const { database } = this.#options
    const isDelivered = attempt.status !== null && attempt.status >= 200 && attempt.status < 300
    const isSlow = !isDelivered || attempt.duration_ms > slowMs
    const isHopeless = await database.transaction(async (connection) => {
      const now = await readClock(connection)
      const after = (ms: number) => new Date(now.getTime() + ms)
      const row = await rowOf<{ readonly failingSince: Date | undefined }>(
        connection.queryPrepared(
          'record_webhook_attempt',
          `update webhook_endpoints
            set sent_to = greatest(sent_to, $3), is_slow = $4, failures = case when $5 then 0 else failures + 1 end,
                failing_since = case when not $5 then coalesce(failing_since, $6) end,
                due_at = case when $5 then $6 else ($7::timestamptz[])[least(failures + 1, cardinality($7::timestamptz[]))] end
          where partition = $1 and id = $2 returning failing_since`,
          [endpoint.partition, endpoint.id, event.number ?? 0n, isSlow, isDelivered, now, pausesMs().map(after)],
        ),
      )
      // The endpoint was removed.
      if (row === undefined) return false
      const all = [...attempts, attempt]
      const isGivenUp = now.getTime() - event.eventAt.getTime() > retriedMsMax
      const state = isDelivered ? 'delivered' : isGivenUp ? 'failed' : 'waiting'
      await connection.queryPrepared(
        'write_webhook_delivery',
        `insert into webhook_deliveries (partition, account_id, endpoint_id, event_id, number, type, data, event_at, state, due_at, attempts,
                                         created_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
         on conflict (partition, endpoint_id, event_id) do update
           set state = excluded.state, due_at = excluded.due_at, attempts = excluded.attempts`,
        [
          endpoint.partition,
          endpoint.accountId,
          endpoint.id,
          event.eventId,
          event.number ?? null,
          event.type,
          JSON.stringify(event.data),
          event.eventAt,
          state,
          state === 'waiting' ? after(retryDelayMs(all.length, Math.random())) : null,
          JSON.stringify(all.slice(-attemptsKeptMax)),
          now,
        ],
      )
      this.#failpoint('before_webhook_commit')
      return row.failingSince !== undefined && now.getTime() - row.failingSince.getTime() > retriedMsMax
    })
    this.#failpoint('after_webhook_commit')
    this.#options.onAttempt(isDelivered)
    if (attempt.status === 410) await this.#disable(endpoint, 'gone')
    else if (isHopeless) await this.#disable(endpoint, 'failing')
    return isSlow
  }

  async #disable(endpoint: WebhookEndpoint, reason: DisabledReason): Promise<void> {
    const isNews = await this.#options.database.transaction(async (connection) => {
      await lockAccount(connection, endpoint)
      return disableEndpoint(connection, endpoint, endpoint.id, reason)
    })
    if (isNews) this.#options.onDisabled(endpoint, reason)
  }
}

type Next = {
  readonly endpoint: WebhookEndpoint
  readonly event: WebhookEvent
  readonly attempts: readonly DeliveryAttempt[]
}

type EndpointProgress = { readonly sentTo: bigint; readonly events: bigint; readonly waiting: bigint }

type EventRange = { readonly after: bigint; readonly to: bigint }

// The request of request.ended may have been archived meanwhile. Then only its id is known.
const findNextEvent = `
  select e.id as event_id, e.number, e.type, e.created_at as event_at, coalesce(e.data, jsonb_build_object(
           'id', 'req_' || replace(e.id::text, '-', ''), 'key_id', r.key_id, 'status', r.status, 'model', r.model,
           'quote_atomic', r.quote::text, 'charged_atomic', r.charged::text, 'search_cost_atomic', r.search_cost::text,
           'prompt_tokens', r.prompt_tokens, 'completion_tokens', r.completion_tokens, 'finish_reason', r.finish_reason,
           'error_code', r.error_code, 'first_token_ms', r.first_token_ms, 'total_ms', r.total_ms)) as data
    from (select id, number, type, data, created_at from events
           where partition = $1 and account_id = $2 and number > $3 and number <= $4 and type = any ($5::text[])
           order by number limit 1) e
    left join requests r on r.partition = $1 and r.id = e.id`

// The first endpoint of each account comes before the second of any account; within that order, by due_at: an endpoint that had its turn
// comes last.
const findDue = `
  with due as (
    select ${endpointColumns}, e.due_at,
           case when not e.is_slow then 'fast' when a.deposited > 0 then 'slow' else 'unpaid' end as lane
      from webhook_endpoints e join accounts a on a.partition = e.partition and a.id = e.account_id
     where e.disabled_at is null and e.due_at <= now() and e.id <> all ($1::uuid[])),
  turns as (select *, row_number() over (partition by lane, account_id order by due_at) as turn from due),
  candidates as (select *, row_number() over (partition by lane order by turn, due_at) as place from turns)
  select partition, id, account_id, url, description, types, secret, old_secrets, old_secrets_until, created_at, disabled_at, disabled_reason,
         failing_since, lane
    from candidates where place <= $2 order by place`
