import { randomUUID } from 'node:crypto'
import type { AccountRef } from '../db/account-ref.ts'
import { readClock } from '../db/clock.ts'
import type { Connection, Database } from '../db/database.ts'
import { lockAccount } from '../db/lock-account.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import { writeEvent } from '../db/write-event.ts'
import { ServiceError } from '../errors.ts'
import type { Usdc } from '../money/usdc.ts'
import { createApiKey, hashApiKey, hintOf } from './api-key-format.ts'
import {
  type KeyOptions,
  noOptions,
  type OptionChanges,
  type OptionRow,
  optionColumns,
  readColumns,
  readOptions,
} from './key-options.ts'
import { checkMemberLimit } from './member-limit.ts'
import { lockOpenAccount } from './open-account.ts'
import { type Role, reaches } from './roles.ts'

export const limitWindows = ['lifetime', 'day', 'week', 'month'] as const
export type LimitWindow = (typeof limitWindows)[number]

export type ApiKey = {
  readonly partition: number
  readonly id: string
  readonly accountId: string
  readonly name: string
  readonly hint: string
  /** The key of a wallet account. Requests paid over x402 count under it; it never has a secret. */
  readonly isX402: boolean
  readonly limit: Usdc | undefined
  readonly limitWindow: LimitWindow
  readonly spent: Usdc
  readonly held: Usdc
  readonly expiresAt: Date | undefined
  readonly revokedAt: Date | undefined
  /** A disabled key is refused like a revoked one, and can be enabled again. */
  readonly disabled: boolean
  readonly expired: boolean
  /** When its window ends and its spend counts from zero; undefined for a lifetime. */
  readonly resetsAt: Date | undefined
  /** Earlier secrets that still work after a rotation. */
  readonly oldSecrets: readonly OldSecret[]
  readonly options: KeyOptions
  readonly lastUsedAt: Date | undefined
  readonly createdAt: Date
  /** The person who made it; undefined when a command or a management key did. */
  readonly madeBy: string | undefined
}

export type NewApiKey = {
  readonly partition: number
  readonly accountId: string
  readonly name: string
  readonly limit?: Usdc | undefined
  readonly limitWindow?: LimitWindow | undefined
  readonly expiresAt?: Date | undefined
  /** Default: unrestricted. */
  readonly options?: OptionChanges | undefined
  readonly madeBy?: string | undefined
}

/** Runs in the transaction of a change. Callers write the account log here. */
export type Alongside = (connection: Connection, keyId: string) => Promise<void>

/**
 * Creates a key. The secret is returned here only: the database stores its hash and a masked hint. Throws when its creator may no longer
 * create keys, and `member_limit_exceeded` when the keys of its creator could then spend more than the creator's limit.
 */
export async function createKey(
  database: Database,
  key: NewApiKey,
  alongside?: Alongside,
): Promise<{ readonly secret: string; readonly id: string }> {
  const secret = createApiKey()
  const id = randomUUID()
  const { options = {} } = key
  await database.transaction(async (transaction) => {
    await lockOpenAccount(transaction, key)
    if (key.madeBy !== undefined) await requireDeveloper(transaction, key, key.madeBy)
    await refuseManyKeys(transaction, key)
    await forgetRevokedKeys(transaction, key)
    await transaction.query(
      `insert into api_keys (partition, id, account_id, name, hint, limit_amount, limit_window, expires_at, ${optionColumns}, made_by)
       values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
      [
        key.partition,
        id,
        key.accountId,
        key.name,
        hintOf(secret),
        key.limit ?? null,
        key.limitWindow ?? 'lifetime',
        key.expiresAt ?? null,
        options.allowedModels ?? noOptions.allowedModels,
        options.maxRequestCost ?? null,
        options.webTools ?? noOptions.webTools,
        options.allowedIps ?? noOptions.allowedIps,
        key.madeBy ?? null,
      ],
    )
    await transaction.query(
      'insert into api_key_hashes (hash, partition, account_id, key_id, hint, known_to) values ($1, $2, $3, $4, $5, $6)',
      [hashApiKey(secret), key.partition, key.accountId, id, hintOf(secret), key.madeBy ?? null],
    )
    if (key.madeBy !== undefined) await checkMemberLimit(transaction, key, key.madeBy)
    await writeEvent(transaction, key, 'key.created', { id, name: key.name })
    await alongside?.(transaction, id)
  })
  return { secret, id }
}

/** A person may be removed between confirming a login and the terminal's poll for its key. No later removal would revoke that key. */
async function requireDeveloper(
  connection: Connection,
  { partition, accountId }: AccountRef,
  personId: string,
): Promise<void> {
  const member = await rowOf<{ readonly role: Role }>(
    connection.query('select role from memberships where partition = $1 and account_id = $2 and person_id = $3', [
      partition,
      accountId,
      personId,
    ]),
  )
  if (member === undefined || !reaches(member.role, 'developer'))
    throw new ServiceError(
      'role_required',
      'You may no longer create keys in this account. Ask an owner or admin. No key was created.',
    )
}

/** Throws when the account has its maximum of keys that are not revoked. */
export async function refuseManyKeys(connection: Connection, { partition, accountId }: AccountRef): Promise<void> {
  const [known] = await connection.query<{ count: number }>(
    `select count(*)::int as count from api_keys k where partition = $1 and account_id = $2 and not (${isRevoked})`,
    [partition, accountId],
  )
  if (known!.count >= keysPerAccountMax)
    throw new ServiceError(
      'invalid_value',
      `The account has ${keysPerAccountMax} keys, which is the maximum. Revoke one that you do not need.`,
    )
}

/** Without this, an account without money could add rows without end. Keys that were used stay, for the log. */
async function forgetRevokedKeys(connection: Connection, { partition, accountId }: AccountRef): Promise<void> {
  const forgotten = await connection.query<{ id: string }>(
    `delete from api_keys where partition = $1 and account_id = $2 and id in
       (select id from api_keys k where partition = $1 and account_id = $2 and ${isRevoked} and last_used_at is null
         order by revoked_at desc, id offset ${unusedRevokedMax})
     returning id`,
    [partition, accountId],
  )
  if (forgotten.length > 0)
    await connection.query('delete from api_key_hashes where key_id = any ($1::uuid[])', [
      forgotten.map(({ id }) => id),
    ])
}

/** Those that are not revoked first, then newest first. Without `accountId`: keys of all accounts. `madeBy` selects the keys of one member. */
export async function listKeys(database: Database, accountId?: string, madeBy?: string): Promise<readonly ApiKey[]> {
  const rows = await rowsOf<KeyRow>(
    database.query(
      `select ${keyColumns} from api_keys k
      where ($1::uuid is null or account_id = $1) and ($2::uuid is null or made_by = $2)
      order by ${isRevoked}, created_at desc, id limit ${keysPerAccountMax}`,
      [accountId ?? null, madeBy ?? null],
    ),
  )
  return readKeys(database, rows)
}

/** Revoked keys count too. `madeBy` selects the keys of one member. */
export async function countKeys(
  database: Database,
  { partition, accountId }: AccountRef,
  madeBy?: string,
): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    `select count(*)::int as count from api_keys
      where partition = $1 and account_id = $2 and ($3::uuid is null or made_by = $3)`,
    [partition, accountId, madeBy ?? null],
  )
  return row!.count
}

/** The names of all keys of an account, by id. */
export async function listKeyNames(
  database: Database,
  { partition, accountId }: AccountRef,
): Promise<ReadonlyMap<string, string>> {
  const rows = await database.query<{ id: string; name: string }>(
    `select id, name from api_keys where partition = $1 and account_id = $2 limit ${keysPerAccountMax}`,
    [partition, accountId],
  )
  return new Map(rows.map(({ id, name }) => [id, name]))
}

/** A key of this account; with `madeBy`, of this member. Keys of others are reported as missing, so ids cannot be probed. */
export async function findKey(
  connection: Connection,
  { partition, accountId }: AccountRef,
  keyId: string,
  madeBy?: string,
): Promise<ApiKey | undefined> {
  const row = await rowOf<KeyRow>(
    connection.query(
      `select ${keyColumns} from api_keys k
      where partition = $1 and id = $2 and account_id = $3 and ($4::uuid is null or made_by = $4)`,
      [partition, keyId, accountId, madeBy ?? null],
    ),
  )
  return row === undefined ? undefined : (await readKeys(connection, [row]))[0]
}

const keysPerAccountMax = 1000
const unusedRevokedMax = 900
const isRevoked = 'k.revoked_at is not null and not k.disabled'
/** Old secrets of a key that still work. */
export const oldSecretsMax = 10
/** The hint of a wallet's key, which has no secret. Written by `credit_x402_payment`. */
const x402Hint = 'x402'

const keyColumns = `
  partition, id, account_id, name, hint, limit_amount as "limit", limit_window, expires_at, revoked_at, disabled, last_used_at, created_at,
  made_by, ${readColumns}, hint = '${x402Hint}' as is_x402,
  coalesce(expires_at <= clock_timestamp(), false) as expired,
  case when limit_window <> 'lifetime' then
    (window_start(limit_window, clock_timestamp()) at time zone 'UTC' + ('1 ' || limit_window)::interval) at time zone 'UTC'
  end as resets_at,
  -- Spend of an earlier window does not count.
  case when window_start >= window_start(limit_window, clock_timestamp()) then spent else 0 end as spent,
  case when window_start >= window_start(limit_window, clock_timestamp()) then held else 0 end as held`

export type Rotation = {
  readonly overlapSeconds: number
  /** The person who receives the new secret; left out when a management key does. */
  readonly knownTo?: string | undefined
}

/**
 * Rotates the secret of a key and returns the new one, here only. Earlier secrets expire after the overlap at the latest. Limit, spend
 * and history stay. Undefined when there is no such key. Throws when too many old secrets still work.
 */
export async function rotateKey(
  database: Database,
  keyId: string,
  { overlapSeconds, knownTo }: Rotation,
  alongside?: Alongside,
): Promise<{ readonly secret: string } | undefined> {
  const secret = createApiKey()
  const rotated = await withLockedKey(database, keyId, async (connection, account) => {
    const { partition } = account
    const key = await findKey(connection, account, keyId)
    if (key?.isX402 === true) throw new X402KeyError()
    await connection.query('delete from api_key_hashes where key_id = $1 and expires_at <= now()', [keyId])
    if (overlapSeconds > 0) await refuseManySecrets(connection, keyId)
    await connection.query(
      `update api_key_hashes
          set expires_at = least(expires_at, now() + make_interval(secs => $2)), hint = coalesce(hint, $3)
        where key_id = $1`,
      [keyId, overlapSeconds, key?.hint ?? null],
    )
    await connection.query(
      `insert into api_key_hashes (hash, partition, account_id, key_id, hint, known_to)
       select $3, k.partition, k.account_id, k.id, $4, $5 from api_keys k where k.partition = $1 and k.id = $2`,
      [partition, keyId, hashApiKey(secret), hintOf(secret), knownTo ?? null],
    )
    await connection.query(
      'update api_keys set hint = $3, options_version = options_version + 1 where partition = $1 and id = $2',
      [partition, keyId, hintOf(secret)],
    )
    await writeEvent(connection, account, 'key.updated', { id: keyId, changed: ['secret'] })
    await alongside?.(connection, keyId)
  })
  return rotated ? { secret } : undefined
}

/** Each listing of keys reads their old secrets, and each rotation writes all old secrets of its key. */
async function refuseManySecrets(connection: Connection, keyId: string): Promise<void> {
  const [old] = await connection.query<{ count: number }>(
    'select count(*)::int as count from api_key_hashes where key_id = $1 and expires_at is not null',
    [keyId],
  )
  if (old!.count >= oldSecretsMax)
    throw new ServiceError(
      'invalid_value',
      `This key has ${oldSecretsMax} old secrets that still work, which is the maximum. Rotate it without an overlap, which ends all of them now, or wait until one ends. Nothing was changed.`,
      { param: 'overlap_seconds' },
    )
}

/** Revokes a key for new requests. Requests with an open hold still complete. False when there is no such key. */
export async function revokeKey(database: Database, keyId: string, alongside?: Alongside): Promise<boolean> {
  return withLockedKey(database, keyId, async (connection, account) => {
    await connection.query(
      'update api_keys set revoked_at = coalesce(revoked_at, $3), disabled = false where partition = $1 and id = $2',
      [account.partition, keyId, await readClock(connection)],
    )
    await writeEvent(connection, account, 'key.revoked', { id: keyId })
    await alongside?.(connection, keyId)
  })
}

/** Fields that are left out stay. `null` removes a limit or an expiry. */
export type KeyChanges = {
  readonly name?: string | undefined
  readonly limit?: Usdc | null | undefined
  readonly limitWindow?: LimitWindow | undefined
  readonly expiresAt?: Date | null | undefined
  readonly disabled?: boolean | undefined
  readonly options?: OptionChanges | undefined
}

/**
 * Changes a key for new requests. A limit below what is already spent and held refuses new requests; open requests complete. False
 * when there is no such key. Changes nothing and throws `KeyRevokedForGoodError` for a revoked key, `rate_limited` when the window
 * was changed less than a minute ago, or `member_limit_exceeded` when the keys of its member could then spend more than the member's limit.
 */
export async function updateKey(
  database: Database,
  keyId: string,
  changes: KeyChanges,
  alongside?: Alongside,
): Promise<boolean> {
  const { limitWindow, options = {} } = changes
  const old = limitWindow === undefined ? undefined : await sumOldSpend(database, keyId, limitWindow)
  return withLockedKey(database, keyId, async (connection, account) => {
    const { partition, accountId } = account
    // In another window the spend of a revoked key would no longer count towards its member's limit.
    const { revokedAt, disabled } = (await findKey(connection, account, keyId))!
    if (revokedAt !== undefined && !disabled) throw new KeyRevokedForGoodError()
    if (limitWindow !== undefined && old !== undefined) {
      const changed = await rowOf<{ readonly waitMs: number }>(
        connection.query('select change_limit_window($1, $2, $3, $4, $5, $6, $7) as wait_ms', [
          partition,
          accountId,
          keyId,
          limitWindow,
          old.start,
          old.before,
          old.spent,
        ]),
      )
      if (changed!.waitMs > 0)
        throw new ServiceError(
          'rate_limited',
          `The limit window of a key can be changed once a minute. Try again in ${Math.ceil(changed!.waitMs / 1000)} s; nothing was changed.`,
          { retryAfterMs: changed!.waitMs },
        )
    }
    await connection.query(
      `update api_keys set name = coalesce($3, name),
              limit_amount = case when $4 then $5::bigint else limit_amount end,
              limit_reached_at = case when not $4 then limit_reached_at end,
              expires_at = case when $6 then $7::timestamptz else expires_at end,
              revoked_at = case when $8::boolean is null then revoked_at when $8 then coalesce(revoked_at, $14) end,
              disabled = coalesce($8, disabled),
              allowed_models = coalesce($9, allowed_models),
              max_request_cost = case when $10 then $11::bigint else max_request_cost end,
              web_tools = coalesce($12, web_tools),
              allowed_ips = coalesce($13, allowed_ips),
              options_version = options_version + 1
        where partition = $1 and id = $2`,
      [
        partition,
        keyId,
        changes.name ?? null,
        changes.limit !== undefined,
        changes.limit ?? null,
        changes.expiresAt !== undefined,
        changes.expiresAt ?? null,
        changes.disabled ?? null,
        options.allowedModels ?? null,
        options.maxRequestCost !== undefined,
        options.maxRequestCost ?? null,
        options.webTools ?? null,
        options.allowedIps ?? null,
        await readClock(connection),
      ],
    )
    const key = await rowOf<{ readonly madeBy: string | undefined }>(
      connection.query('select made_by from api_keys where partition = $1 and id = $2', [partition, keyId]),
    )
    if (key?.madeBy !== undefined) await checkMemberLimit(connection, account, key.madeBy)
    await writeEvent(connection, account, 'key.updated', { id: keyId, changed: changedFields(changes) })
    await alongside?.(connection, keyId)
  })
}

/** Names as in the API. */
function changedFields({ options = {}, ...changes }: KeyChanges): readonly string[] {
  const given = Object.entries({ ...changes, ...options }).filter(([, value]) => value !== undefined)
  return given.map(([name]) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`))
}

/** The part of a key's spend in a window that can no longer change. */
type OldSpend = { readonly start: string; readonly before: string; readonly spent: bigint }

/**
 * Sums, without a lock, the hours that can no longer change: older than every open request of the account, and older than two days,
 * after which no retry can refund a charge.
 */
async function sumOldSpend(database: Database, keyId: string, window: LimitWindow): Promise<OldSpend | undefined> {
  const [old] = await database.query<OldSpend>(
    `select w.start::text as start, c.before::text as before,
            (select coalesce(sum(h.charged), 0)::bigint from usage_hours h
              where h.partition = k.partition and h.account_id = k.account_id and h.key_id = k.id
                and h.hour >= w.start and h.hour < c.before) as spent
       from api_keys k
       cross join lateral (select window_start($2, clock_timestamp()) as start) w
       cross join lateral (
         select date_trunc('hour', least(clock_timestamp() - interval '2 days', min(h.created_at)), 'UTC') as before
           from holds h where h.partition = k.partition and h.account_id = k.account_id) c
      where k.id = $1`,
    [keyId, window],
  )
  return old
}

/** Every writer of a key locks the account first, so that a batch of holds sees the key either before or after the change. */
async function withLockedKey(
  database: Database,
  keyId: string,
  work: (connection: Connection, account: AccountRef) => Promise<void>,
): Promise<boolean> {
  return database.transaction(async (connection) => {
    const account = await rowOf<AccountRef>(
      connection.query('select partition, account_id from api_keys where id = $1', [keyId]),
    )
    if (account === undefined) return false
    await lockAccount(connection, account)
    await work(connection, account)
    return true
  })
}

type KeyRow = Omit<ApiKey, 'oldSecrets' | 'options'> & OptionRow

type OldSecret = { readonly hint: string; readonly worksUntil: Date }

/** With their old secrets that still work, in a query of their own: on a cluster hashes and keys are not in one place. */
async function readKeys(connection: Connection, rows: readonly KeyRow[]): Promise<readonly ApiKey[]> {
  if (rows.length === 0) return []
  const old = await rowsOf<OldSecret & { readonly keyId: string }>(
    connection.query(
      `select key_id, hint, expires_at as works_until from api_key_hashes
      where key_id = any ($1::uuid[]) and expires_at > clock_timestamp() order by expires_at`,
      [rows.map(({ id }) => id)],
    ),
  )
  const byKey = Map.groupBy(old, ({ keyId }) => keyId)
  return rows.map((row) => ({
    ...row,
    oldSecrets: (byKey.get(row.id) ?? []).map(({ hint, worksUntil }) => ({ hint, worksUntil })),
    options: readOptions(row),
  }))
}

export class X402KeyError extends ServiceError {
  constructor() {
    super(
      'invalid_value',
      'This is the wallet’s own key: it has no secret to rotate and cannot be revoked. Disable it, or set a limit. For API requests create another key.',
    )
  }
}

export class KeyRevokedForGoodError extends ServiceError {
  constructor() {
    super('invalid_value', 'This key was revoked and cannot be changed. Create a new one.')
  }
}
