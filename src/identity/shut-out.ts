import type { AccountRef } from '../db/account-ref.ts'
import { readClock } from '../db/clock.ts'
import type { Connection } from '../db/database.ts'

/** Revokes every key of an account and forgets everybody who could sign in to it. For a transaction that holds the account's lock. */
export async function shutOut(connection: Connection, { partition, accountId }: AccountRef): Promise<void> {
  await connection.query(
    `update api_keys set revoked_at = coalesce(revoked_at, $3), disabled = false
      where partition = $1 and account_id = $2`,
    [partition, accountId, await readClock(connection)],
  )
  for (const table of ['sessions', 'wallets', 'passkeys', 'login_links', 'device_logins'])
    await connection.query(`delete from ${table} where account_id = $1`, [accountId])
}
