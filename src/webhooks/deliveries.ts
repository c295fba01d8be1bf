import { randomUUID } from 'node:crypto'
import { readClock } from '../db/clock.ts'
import type { Connection, Database } from '../db/database.ts'
import { chunkRowsMax, deleteInChunks } from '../db/delete-in-chunks.ts'
import { wakeHolder } from '../db/exclusive.ts'
import { lockAccount } from '../db/lock-account.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import { ServiceError } from '../errors.ts'
import { listPartitions } from '../ledger/accounts.ts'
import { pageValues, type TransferPage } from '../ledger/transfer-page.ts'
import { format, fromAtomic } from '../money/usdc.ts'
import type { WebhookEndpoint } from './endpoints.ts'

export const deliveryStates = ['waiting', 'delivered', 'failed'] as const
export type DeliveryState = (typeof deliveryStates)[number]

/** An attempt, as stored and shown. Without a status there was no response, and `error` says why. */
export type DeliveryAttempt = {
  readonly at: string
  readonly status: number | null
  readonly error: string | null
  readonly duration_ms: number
  /** The beginning of the response body. */
  readonly answer: string
}

/** An event to send. */
export type WebhookEvent = {
  readonly eventId: string
  /** Undefined for a test event. */
  readonly number: bigint | undefined
  readonly type: string
  readonly data: Readonly<Record<string, unknown>>
  readonly eventAt: Date
}

export type Delivery = WebhookEvent & {
  readonly state: DeliveryState
  readonly dueAt: Date | undefined
  readonly attempts: readonly DeliveryAttempt[]
  readonly createdAt: Date
}

const testType = 'webhook.test'
/** Deliveries in the log of an endpoint, besides those that wait. */
export const deliveriesPerEndpointMax = 1_000
const deliveryDays = 4

/** The same text for every attempt, so that receivers can compare them. Each amount has two fields, as in `/api`. */
export function renderBody({ accountId }: WebhookEndpoint, { type, number, data, eventAt }: WebhookEvent): string {
  const members = Object.entries(data).flatMap(([name, value]) =>
    name.endsWith('_atomic')
      ? [
          [name, value],
          [name.slice(0, -'_atomic'.length), value === null ? null : format(fromAtomic(BigInt(String(value))))],
        ]
      : [[name, value]],
  )
  return JSON.stringify({
    type,
    timestamp: eventAt.toISOString(),
    account_id: accountId,
    sequence: number === undefined ? null : Number(number),
    data: Object.fromEntries(members),
  })
}

export function formatEventId(eventId: string): string {
  return `evt_${eventId.replaceAll('-', '')}`
}

/** Undefined when the text is not the id of an event. */
export function parseEventId(text: string): string | undefined {
  const [, ...parts] = /^evt_([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})$/.exec(text) ?? []
  return parts.length === 0 ? undefined : parts.join('-')
}

/** Newest first. */
export async function listDeliveries(
  database: Database,
  { partition, id }: WebhookEndpoint,
  page: TransferPage,
): Promise<readonly Delivery[]> {
  return rowsOf<Delivery>(
    database.query(
      `select ${deliveryColumns} from webhook_deliveries
      where partition = $1 and endpoint_id = $2
        and ($3::timestamptz is null or (date_trunc('milliseconds', created_at), event_id) < ($3, $4::uuid))
      order by date_trunc('milliseconds', created_at) desc, event_id desc limit $5`,
      [partition, id, ...pageValues(page)],
    ),
  )
}

export async function findDelivery(
  connection: Connection,
  { partition, id }: WebhookEndpoint,
  eventId: string,
): Promise<Delivery | undefined> {
  return rowOf<Delivery>(
    connection.query(
      `select ${deliveryColumns} from webhook_deliveries where partition = $1 and endpoint_id = $2 and event_id = $3`,
      [partition, id, eventId],
    ),
  )
}

/** Sends an event again now, whether or not it was delivered. Undefined when it is not in the log of this endpoint. */
export async function resend(
  database: Database,
  endpoint: WebhookEndpoint,
  eventId: string,
): Promise<Delivery | undefined> {
  refuseDisabled(endpoint)
  return database.transaction(async (connection) => {
    await lockAccount(connection, endpoint)
    await connection.query(
      `update webhook_deliveries set state = 'waiting', due_at = $4 where partition = $1 and endpoint_id = $2 and event_id = $3`,
      [endpoint.partition, endpoint.id, eventId, await readClock(connection)],
    )
    await makeDue(connection, endpoint)
    return findDelivery(connection, endpoint, eventId)
  })
}

/** Sends a test event to this endpoint only. */
export async function sendTest(database: Database, endpoint: WebhookEndpoint): Promise<Delivery> {
  refuseDisabled(endpoint)
  const eventId = randomUUID()
  return database.transaction(async (connection) => {
    const { partition, accountId, id } = endpoint
    await lockAccount(connection, endpoint)
    const [row] = await connection.query<{ count: bigint }>(
      `select count(*) as count from webhook_deliveries where partition = $1 and endpoint_id = $2 and state = 'waiting'`,
      [partition, id],
    )
    if (row!.count >= BigInt(deliveriesPerEndpointMax))
      throw new ServiceError(
        'invalid_value',
        `${deliveriesPerEndpointMax} events are waiting for this webhook endpoint. Wait until it accepts them.`,
      )
    await connection.query(
      `insert into webhook_deliveries (partition, account_id, endpoint_id, event_id, type, data, event_at, state, due_at, created_at)
       values ($1, $2, $3, $4, $5, $6, $7, 'waiting', $7, $7)`,
      [partition, accountId, id, eventId, testType, JSON.stringify({ endpoint_id: id }), await readClock(connection)],
    )
    await makeDue(connection, endpoint)
    return (await findDelivery(connection, endpoint, eventId))!
  })
}

/**
 * A person asked for it, so the pause after failures ends. Holds the account's lock: otherwise the deliverer could pause the endpoint
 * meanwhile.
 */
async function makeDue(connection: Connection, { partition, id }: WebhookEndpoint): Promise<void> {
  await connection.query('update webhook_endpoints set due_at = $3 where partition = $1 and id = $2', [
    partition,
    id,
    await readClock(connection),
  ])
  await wakeHolder(connection, 'webhooks')
}

function refuseDisabled({ disabledAt }: WebhookEndpoint): void {
  if (disabledAt !== undefined)
    throw new ServiceError('invalid_value', 'This webhook endpoint is disabled. Enable it first.')
}

/** Deletes deliveries older than four days, and all but the newest thousand of each endpoint. Waiting ones are kept for four days. */
export async function deleteOldDeliveries(
  database: Database,
  deliveriesMax: number = deliveriesPerEndpointMax,
): Promise<void> {
  const before = new Date((await readClock(database)).getTime() - deliveryDays * 86_400_000)
  for (const partition of await listPartitions(database)) {
    await deleteInChunks(() =>
      database.query(
        `delete from webhook_deliveries d using (
           select x.endpoint_id, x.event_id from webhook_deliveries x where x.partition = $1 and x.created_at < $2
            order by x.created_at limit ${chunkRowsMax}) old
          where d.partition = $1 and d.endpoint_id = old.endpoint_id and d.event_id = old.event_id returning 1`,
        [partition, before],
      ),
    )
    // For each endpoint the index is read from the newest delivery down to the last one to keep; those below it are deleted.
    await deleteInChunks(() =>
      database.query(
        `delete from webhook_deliveries d using (
           select x.endpoint_id, x.event_id from webhook_endpoints e
            cross join lateral (select k.created_at, k.event_id from webhook_deliveries k
                                 where k.partition = $1 and k.endpoint_id = e.id
                                 order by k.created_at desc, k.event_id desc offset $2 limit 1) kept
             join webhook_deliveries x on x.partition = $1 and x.endpoint_id = e.id and x.state <> 'waiting'
              and (x.created_at, x.event_id) <= (kept.created_at, kept.event_id)
            where e.partition = $1 limit ${chunkRowsMax}) old
          where d.partition = $1 and d.endpoint_id = old.endpoint_id and d.event_id = old.event_id returning 1`,
        [partition, deliveriesMax],
      ),
    )
  }
}

export const deliveryColumns = 'event_id, number, type, data, event_at, state, due_at, attempts, created_at'
