import type { AccountRef } from '../db/account-ref.ts'
import { readClock } from '../db/clock.ts'
import type { Connection } from '../db/database.ts'
import { lockPerson } from './people.ts'

/**
 * Revokes every key of a closed account and ends its memberships. Deletes people without other accounts, with their wallets and passkeys.
 * Call it in a transaction that holds the account's lock.
 */
export async function revokeAccess(connection: Connection, { partition, accountId }: AccountRef): Promise<void> {
  await connection.query(
    `update api_keys set revoked_at = coalesce(revoked_at, $3), disabled = false
      where partition = $1 and account_id = $2`,
    [partition, accountId, await readClock(connection)],
  )
  for (const table of ['sessions', 'login_links', 'device_logins', 'invitations', 'management_keys'])
    await connection.query(`delete from ${table} where account_id = $1`, [accountId])
  const members = await connection.query<{ person_id: string }>(
    'delete from memberships where partition = $1 and account_id = $2 returning person_id',
    [partition, accountId],
  )
  // In id order, against deadlocks: two accounts with the same members may be closed concurrently.
  for (const personId of members.map(({ person_id }) => person_id).sort()) {
    await lockPerson(connection, personId)
    const others = await connection.query('select from memberships where person_id = $1 limit 1', [personId])
    if (others.length > 0) continue
    for (const table of ['sessions', 'wallets', 'passkeys'])
      await connection.query(`delete from ${table} where person_id = $1`, [personId])
    await connection.query('delete from people where id = $1', [personId])
  }
}
