import type { AccountRef } from '../db/account-ref.ts'
import { readClock } from '../db/clock.ts'
import type { Connection } from '../db/database.ts'
import { rowsOf } from '../db/rows.ts'
import { writeEvent } from '../db/write-event.ts'
import { type Role, reaches } from './roles.ts'

export type RevokedSecrets = {
  /** API keys that were revoked or have lost a secret: forget what is cached of them. */
  readonly changedKeyIds: readonly string[]
  /** Keys that the member did not make, but had rotated and so received the secret of. */
  readonly ofOthers: readonly ChangedKey[]
}

export type ChangedKey = {
  readonly kind: 'api_key' | 'management_key'
  readonly id: string
  readonly name: string
  /** Fields as in the API; undefined: the key was revoked. */
  readonly changed: readonly string[] | undefined
}

/**
 * Revokes the secrets that a member may no longer know: all of them without a role, those of management keys and of API keys of others
 * below admin, those of own API keys below developer. Call it in a transaction that holds the account's lock.
 */
export async function revokeSecrets(
  connection: Connection,
  account: AccountRef,
  personId: string,
  role: Role | undefined,
): Promise<RevokedSecrets> {
  if (role !== undefined && reaches(role, 'admin')) return { changedKeyIds: [], ofOthers: [] }
  const managementKeys = await revokeManagementKeys(connection, account, personId)
  const received = await endReceivedSecrets(connection, account, personId)
  const own = role !== undefined && reaches(role, 'developer') ? [] : await revokeOwnKeys(connection, account, personId)
  return { changedKeyIds: [...own, ...received.map(({ id }) => id)], ofOthers: [...managementKeys, ...received] }
}

async function revokeManagementKeys(
  connection: Connection,
  { accountId }: AccountRef,
  personId: string,
): Promise<readonly ChangedKey[]> {
  const revoked = await rowsOf<{ readonly id: string; readonly name: string; readonly madeBy: string }>(
    connection.query(
      `update management_keys set revoked_at = $3
      where account_id = $1 and (made_by = $2 or known_to = $2) and revoked_at is null returning id, name, made_by`,
      [accountId, personId, await readClock(connection)],
    ),
  )
  const ofOthers = revoked.filter(({ madeBy }) => madeBy !== personId)
  return ofOthers.map(({ id, name }) => ({ kind: 'management_key', id, name, changed: undefined }))
}

async function revokeOwnKeys(
  connection: Connection,
  { partition, accountId }: AccountRef,
  personId: string,
): Promise<readonly string[]> {
  await connection.query('delete from device_logins where account_id = $1 and person_id = $2', [accountId, personId])
  const own = await connection.query<{ id: string }>(
    `select id from api_keys
      where partition = $1 and account_id = $2 and made_by = $3 and (revoked_at is null or disabled) order by id`,
    [partition, accountId, personId],
  )
  const ids = own.map(({ id }) => id)
  await revokeKeys(connection, { partition, accountId }, ids)
  return ids
}

/**
 * Ends the secrets that a person received by rotating keys of others. A key on which another secret still works stays, until that one
 * ends; any other is revoked, so that its owner is not left with a key that looks active and refuses every request.
 */
async function endReceivedSecrets(
  connection: Connection,
  { partition, accountId }: AccountRef,
  personId: string,
): Promise<readonly ChangedKey[]> {
  const account = { partition, accountId }
  const keys = await connection.query<{ id: string; name: string }>(
    `select id, name from api_keys
      where partition = $1 and account_id = $2 and made_by is distinct from $3 and (revoked_at is null or disabled)
      order by id`,
    [partition, accountId, personId],
  )
  const now = await readClock(connection)
  const secrets = await rowsOf<Secret>(
    connection.query(
      `select key_id, hint, known_to, expires_at from api_key_hashes
      where key_id = any ($1::uuid[]) and (expires_at is null or expires_at > $2) order by expires_at desc nulls first`,
      [keys.map(({ id }) => id), now],
    ),
  )
  const secretsOf = Map.groupBy(secrets, ({ keyId }) => keyId)
  const received = keys.filter(({ id }) => secretsOf.get(id)?.some(({ knownTo }) => knownTo === personId))
  const remaining = ({ id }: { id: string }) => secretsOf.get(id)!.find(({ knownTo }) => knownTo !== personId)
  await connection.query(
    `update api_key_hashes set expires_at = $3
      where key_id = any ($1::uuid[]) and known_to = $2 and (expires_at is null or expires_at > $3)`,
    [received.filter((key) => remaining(key) !== undefined).map(({ id }) => id), personId, now],
  )
  const changes: ChangedKey[] = []
  for (const key of received) {
    const latest = remaining(key)
    const changed =
      latest === undefined ? undefined : ['secret', ...(latest.expiresAt === undefined ? [] : ['expires_at'])]
    changes.push({ kind: 'api_key', id: key.id, name: key.name, changed })
    if (latest === undefined) continue
    // A new version, so that no node admits the ended secret from its cache.
    await connection.query(
      `update api_keys set hint = coalesce($3, hint), expires_at = least(expires_at, $4), options_version = options_version + 1
        where partition = $1 and id = $2`,
      [partition, key.id, latest.hint, latest.expiresAt],
    )
    await writeEvent(connection, account, 'key.updated', { id: key.id, changed })
  }
  const revoked = received.filter((key) => remaining(key) === undefined)
  await revokeKeys(
    connection,
    account,
    revoked.map(({ id }) => id),
  )
  return changes
}

async function revokeKeys(connection: Connection, account: AccountRef, ids: readonly string[]): Promise<void> {
  await connection.query(
    `update api_keys set revoked_at = coalesce(revoked_at, $4), disabled = false
      where partition = $1 and account_id = $2 and id = any ($3::uuid[])`,
    [account.partition, account.accountId, ids, await readClock(connection)],
  )
  for (const id of ids) await writeEvent(connection, account, 'key.revoked', { id })
}

type Secret = {
  readonly keyId: string
  readonly hint: string | undefined
  readonly knownTo: string | undefined
  readonly expiresAt: Date | undefined
}
