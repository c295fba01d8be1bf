import type { AccountRef } from './account-ref.ts'
import type { Connection } from './database.ts'

/**
 * Locks an account until the end of the transaction, like every function that moves its money. Read the account after this, in a
 * separate statement: in the same statement, the snapshot would be older than the lock. On Citus the function also keeps the
 * account's shard in place, which `select … for update` does not.
 */
export async function lockAccount(connection: Connection, { partition, accountId }: AccountRef): Promise<void> {
  await connection.query('select lock_accounts($1, array[$2::uuid])', [partition, accountId])
}
