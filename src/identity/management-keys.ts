import { randomUUID } from 'node:crypto'
import type { AccountRef } from '../db/account-ref.ts'
import type { Connection, Database } from '../db/database.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import { ServiceError } from '../errors.ts'
import { createManagementKey as createSecret, hashApiKey, hintOf, whyMalformedManagementKey } from './api-key-format.ts'
import { InvalidApiKeyError, RevokedApiKeyError } from './key-finder.ts'
import { lockOpenAccount } from './open-account.ts'

/** What a management key may do. `write` includes `read`. */
export const scopes = ['keys:read', 'keys:write', 'usage:read', 'webhooks:read', 'webhooks:write', 'log:read'] as const
export type Scope = (typeof scopes)[number]

export type ManagementKey = {
  readonly id: string
  readonly name: string
  readonly hint: string
  readonly scopes: readonly Scope[]
  readonly madeBy: string
  readonly createdAt: Date
  readonly lastUsedAt: Date | undefined
  readonly expiresAt: Date | undefined
  readonly revokedAt: Date | undefined
  readonly expired: boolean
}

/** The program that sent a management key. */
export type ManagementBearer = AccountRef & {
  readonly managementKeyId: string
  readonly name: string
  readonly scopes: readonly Scope[]
}

export const managementKeysPerAccountMax = 100
const revokedKeptMax = 900

/** Throws a 401 error when the key is not valid. Not cached: calls are rare, and a revoked key must stop working immediately. */
export async function findManagementKey(connection: Connection, secret: string): Promise<ManagementBearer> {
  const problem = whyMalformedManagementKey(secret)
  if (problem !== undefined) throw new InvalidApiKeyError(problem)
  const hash = hashApiKey(secret)
  const row = await rowOf<ManagementBearer & BearerState>(
    connection.query(
      `select id as management_key_id, partition, account_id, name, scopes, revoked_at is not null as is_revoked,
            coalesce(expires_at <= clock_timestamp(), false) as is_expired,
            coalesce(last_used_at < clock_timestamp() - interval '1 minute', true) as is_stale
       from management_keys where hash = $1`,
      [hash],
    ),
  )
  if (row === undefined) {
    throw new InvalidApiKeyError('This management key does not exist, or was rotated. Create one in the dashboard.')
  }
  const { isRevoked, isExpired, isStale, ...bearer } = row
  if (isRevoked) throw new RevokedApiKeyError('This management key was revoked. Create a new one in the dashboard.')
  if (isExpired)
    throw new ServiceError('api_key_expired', 'This management key has expired. Create a new one in the dashboard.')
  if (isStale) await connection.query('update management_keys set last_used_at = now() where hash = $1', [hash])
  return bearer
}

/** Whether the scopes of a key include the needed one. */
export function grants(given: readonly Scope[], needed: Scope): boolean {
  return given.includes(needed) || given.includes(needed.replace(':read', ':write') as Scope)
}

export type NewManagementKey = {
  readonly name: string
  readonly scopes: readonly Scope[]
  readonly expiresAt: Date | undefined
  readonly madeBy: string
}

/** Call it in a transaction. The secret is returned here only and never stored. */
export async function createManagementKey(
  connection: Connection,
  account: AccountRef,
  key: NewManagementKey,
): Promise<{ readonly id: string; readonly secret: string }> {
  await lockOpenAccount(connection, account)
  const [known] = await connection.query<{ count: number }>(
    'select count(*)::int as count from management_keys where account_id = $1 and revoked_at is null',
    [account.accountId],
  )
  if (known!.count >= managementKeysPerAccountMax)
    throw new ServiceError(
      'invalid_value',
      `The account has ${managementKeysPerAccountMax} management keys, which is the maximum. Revoke one first.`,
    )
  await forgetRevokedKeys(connection, account)
  const secret = createSecret()
  const id = randomUUID()
  await connection.query(
    `insert into management_keys (id, hash, partition, account_id, name, hint, scopes, made_by, known_to, expires_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9)`,
    [
      id,
      hashApiKey(secret),
      account.partition,
      account.accountId,
      key.name,
      hintOf(secret),
      key.scopes,
      key.madeBy,
      key.expiresAt ?? null,
    ],
  )
  return { id, secret }
}

/** Revoked keys do not count against the maximum: without this, an account could add rows without end. The account log keeps their names. */
async function forgetRevokedKeys(connection: Connection, { accountId }: AccountRef): Promise<void> {
  await connection.query(
    `delete from management_keys where account_id = $1 and id in
       (select id from management_keys where account_id = $1 and revoked_at is not null
         order by revoked_at desc, id offset ${revokedKeptMax})`,
    [accountId],
  )
}

/** Newest first, with the revoked ones that are kept. */
export async function listManagementKeys(
  database: Database,
  { accountId }: AccountRef,
): Promise<readonly ManagementKey[]> {
  return rowsOf<ManagementKey>(
    database.query(
      `select ${columns} from management_keys where account_id = $1 order by created_at desc, id limit 1000`,
      [accountId],
    ),
  )
}

export async function findManagementKeyById(
  connection: Connection,
  { accountId }: AccountRef,
  id: string,
): Promise<ManagementKey | undefined> {
  return rowOf<ManagementKey>(
    connection.query(`select ${columns} from management_keys where account_id = $1 and id = $2`, [accountId, id]),
  )
}

export type ManagementKeyChanges = {
  readonly name?: string | undefined
  readonly scopes?: readonly Scope[] | undefined
  readonly expiresAt?: Date | null | undefined
}

/** Fields that are left out stay. `null` removes the expiry. */
export async function updateManagementKey(
  connection: Connection,
  id: string,
  { name, scopes: given, expiresAt }: ManagementKeyChanges,
): Promise<void> {
  await connection.query(
    `update management_keys set name = coalesce($2, name), scopes = coalesce($3, scopes),
            expires_at = case when $4 then $5::timestamptz else expires_at end where id = $1`,
    [id, name ?? null, given ?? null, expiresAt !== undefined, expiresAt ?? null],
  )
}

/** Rotates the secret. The earlier one stops working immediately. `knownTo`: the person who receives the new one. */
export async function rotateManagementKey(
  connection: Connection,
  id: string,
  knownTo: string,
): Promise<{ readonly secret: string }> {
  const secret = createSecret()
  await connection.query('update management_keys set hash = $2, hint = $3, known_to = $4 where id = $1', [
    id,
    hashApiKey(secret),
    hintOf(secret),
    knownTo,
  ])
  return { secret }
}

export async function revokeManagementKey(connection: Connection, id: string): Promise<void> {
  await connection.query('update management_keys set revoked_at = now() where id = $1 and revoked_at is null', [id])
}

const columns = `id, name, hint, scopes, made_by, created_at, last_used_at, expires_at, revoked_at,
  coalesce(expires_at <= clock_timestamp(), false) as expired`

type BearerState = { readonly isRevoked: boolean; readonly isExpired: boolean; readonly isStale: boolean }
