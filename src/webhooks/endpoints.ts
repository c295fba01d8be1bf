import { randomBytes, randomUUID } from 'node:crypto'
import type { AccountRef } from '../db/account-ref.ts'
import { readClock } from '../db/clock.ts'
import type { Connection } from '../db/database.ts'
import { lockAccount } from '../db/lock-account.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import { type EventType, writeEvent } from '../db/write-event.ts'
import { ServiceError } from '../errors.ts'

export const disabledReasons = ['failing', 'behind', 'gone', 'by_owner'] as const
export type DisabledReason = (typeof disabledReasons)[number]

export type WebhookEndpoint = AccountRef & {
  readonly id: string
  readonly url: string
  readonly description: string
  readonly types: readonly EventType[]
  readonly secret: Buffer
  /** Messages are signed with these too. */
  readonly oldSecrets: readonly OldSecret[]
  readonly createdAt: Date
  readonly disabledAt: Date | undefined
  readonly disabledReason: DisabledReason | undefined
  readonly failingSince: Date | undefined
}

export type OldSecret = { readonly secret: Buffer; readonly until: Date }

export type EndpointTerms = {
  readonly url: string
  readonly types: readonly EventType[]
  readonly description: string
}

/** Fields that are left out stay. */
export type EndpointChanges = { readonly [Name in keyof EndpointTerms]?: EndpointTerms[Name] | undefined } & {
  readonly enabled?: boolean | undefined
}

export const endpointsPerAccountMax = 10
const oldSecretsMax = 10
const secretBytes = 32

/** Call it in a transaction: it locks the account. The endpoint gets events from now on. */
export async function createEndpoint(
  connection: Connection,
  account: AccountRef,
  { url, types, description }: EndpointTerms,
): Promise<WebhookEndpoint> {
  const id = randomUUID()
  const { partition, accountId } = account
  await lockAccount(connection, account)
  const existing = await listEndpoints(connection, account)
  if (existing.length >= endpointsPerAccountMax)
    throw new ServiceError(
      'invalid_value',
      `The account has ${endpointsPerAccountMax} webhook endpoints, which is the maximum. Remove one first.`,
    )
  await connection.query(
    `insert into webhook_endpoints (partition, id, account_id, url, description, types, secret, sent_to, due_at)
     select $1, $2, $3, $4, $5, $6, $7, a.events, $8 from accounts a where a.partition = $1 and a.id = $3`,
    [partition, id, accountId, url, description, types, randomBytes(secretBytes), await readClock(connection)],
  )
  await keepEventTypes(connection, account)
  return (await findEndpoint(connection, account, id))!
}

/** Oldest first. */
export async function listEndpoints(
  connection: Connection,
  { partition, accountId }: AccountRef,
): Promise<readonly WebhookEndpoint[]> {
  const rows = await rowsOf<EndpointRow>(
    connection.query(
      `select ${endpointColumns} from webhook_endpoints e where e.partition = $1 and e.account_id = $2 order by e.created_at, e.id`,
      [partition, accountId],
    ),
  )
  return rows.map(readEndpoint)
}

/** The account's own endpoint; undefined for another account's endpoint. */
export async function findEndpoint(
  connection: Connection,
  { partition, accountId }: AccountRef,
  id: string,
): Promise<WebhookEndpoint | undefined> {
  const row = await rowOf<EndpointRow>(
    connection.query(
      `select ${endpointColumns} from webhook_endpoints e where e.partition = $1 and e.id = $2 and e.account_id = $3`,
      [partition, id, accountId],
    ),
  )
  return row === undefined ? undefined : readEndpoint(row)
}

/**
 * Call it in a transaction: it locks the account. An endpoint that is enabled again gets events from then on, and those that still wait
 * for it.
 */
export async function updateEndpoint(
  connection: Connection,
  account: AccountRef,
  id: string,
  { url, types, description, enabled }: EndpointChanges,
): Promise<void> {
  const { partition, accountId } = account
  await lockAccount(connection, account)
  await connection.query(
    `update webhook_endpoints
        set url = coalesce($4, url), types = coalesce($5::text[], types), description = coalesce($6, description)
      where partition = $1 and id = $2 and account_id = $3`,
    [partition, id, accountId, url ?? null, types ?? null, description ?? null],
  )
  if (enabled === true) await enable(connection, account, id)
  if (enabled === false) await disableEndpoint(connection, account, id, 'by_owner')
  await keepEventTypes(connection, account)
}

async function enable(connection: Connection, { partition, accountId }: AccountRef, id: string): Promise<void> {
  await connection.query(
    `update webhook_endpoints e
        set disabled_at = null, disabled_reason = null, failures = 0, failing_since = null, is_slow = true, due_at = $4, sent_to = a.events
       from accounts a
      where e.partition = $1 and e.id = $2 and e.account_id = $3 and e.disabled_at is not null and a.partition = $1 and a.id = $3`,
    [partition, id, accountId, await readClock(connection)],
  )
}

/**
 * Stops deliveries to an endpoint. The account must be locked. False when the endpoint was already disabled. The account's other
 * endpoints get an event.
 */
export async function disableEndpoint(
  connection: Connection,
  account: AccountRef,
  id: string,
  reason: DisabledReason,
): Promise<boolean> {
  const { partition, accountId } = account
  const [row] = await connection.query<{ url: string }>(
    `update webhook_endpoints set disabled_at = $4, disabled_reason = $5
      where partition = $1 and id = $2 and account_id = $3 and disabled_at is null returning url`,
    [partition, id, accountId, await readClock(connection), reason],
  )
  if (row === undefined) return false
  await keepEventTypes(connection, account)
  await writeEvent(connection, account, 'webhook.disabled', { id, url: row.url, reason })
  return true
}

/**
 * Rotates the secret. During the overlap messages are signed with the old one too; without an overlap all old ones end. Undefined when
 * there is no such endpoint. Call it in a transaction that has locked the account: on Citus only that lock keeps the row's shard in
 * place.
 */
export async function rotateSecret(
  connection: Connection,
  { partition, accountId }: AccountRef,
  id: string,
  overlapSeconds: number,
): Promise<Buffer | undefined> {
  const row = await rowOf<EndpointRow>(
    connection.query(
      `select ${endpointColumns} from webhook_endpoints e where partition = $1 and id = $2 and account_id = $3`,
      [partition, id, accountId],
    ),
  )
  if (row === undefined) return undefined
  const now = await readClock(connection)
  const before = { secret: row.secret, until: new Date(now.getTime() + overlapSeconds * 1_000) }
  const kept = overlapSeconds === 0 ? [] : [before, ...readEndpoint(row).oldSecrets.filter(({ until }) => until > now)]
  if (kept.length > oldSecretsMax)
    throw new ServiceError(
      'invalid_value',
      `This endpoint has ${oldSecretsMax} old secrets that still sign, which is the maximum. Rotate it without an overlap, which ends all of them now, or wait until one ends. Nothing was changed.`,
      { param: 'overlap_seconds' },
    )
  const secret = randomBytes(secretBytes)
  await connection.query(
    `update webhook_endpoints set secret = $3, old_secrets = $4::bytea[], old_secrets_until = $5::timestamptz[]
      where partition = $1 and id = $2`,
    [partition, id, secret, kept.map((old) => old.secret), kept.map((old) => old.until)],
  )
  return secret
}

/** Call it in a transaction: it locks the account. Removes the endpoint with its deliveries. */
export async function removeEndpoint(connection: Connection, account: AccountRef, id: string): Promise<void> {
  const { partition, accountId } = account
  await lockAccount(connection, account)
  const owned = [partition, id, accountId]
  await connection.query(
    'delete from webhook_deliveries where partition = $1 and endpoint_id = $2 and account_id = $3',
    owned,
  )
  await connection.query('delete from webhook_endpoints where partition = $1 and id = $2 and account_id = $3', owned)
  await keepEventTypes(connection, account)
}

/** The ledger writes these events and no others. */
async function keepEventTypes(connection: Connection, { partition, accountId }: AccountRef): Promise<void> {
  const endpoints = await listEndpoints(connection, { partition, accountId })
  const types = new Set(endpoints.filter(({ disabledAt }) => disabledAt === undefined).flatMap((one) => one.types))
  await connection.query('update accounts set event_types = $3 where partition = $1 and id = $2', [
    partition,
    accountId,
    types.size === 0 ? null : [...types].sort(),
  ])
}

export const endpointColumns = `e.partition, e.id, e.account_id, e.url, e.description, e.types, e.secret, e.old_secrets, e.old_secrets_until,
  e.created_at, e.disabled_at, e.disabled_reason, e.failing_since`

/** An endpoint as stored: PostgreSQL keeps the old secrets and their ends in two arrays. */
export type EndpointRow = Omit<WebhookEndpoint, 'oldSecrets'> & {
  readonly oldSecrets: readonly Buffer[]
  readonly oldSecretsUntil: readonly Date[]
}

export function readEndpoint({ oldSecretsUntil, ...row }: EndpointRow): WebhookEndpoint {
  return { ...row, oldSecrets: row.oldSecrets.map((secret, place) => ({ secret, until: oldSecretsUntil[place]! })) }
}
