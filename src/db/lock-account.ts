import type { AccountRef } from './account-ref.ts'
import type { Connection } from './database.ts'

/**
 * Takes the lock of an account until the end of the transaction, as every function that moves its money does. What is decided from the
 * account is read after this, by a statement of its own: in one with the lock it would be older than the lock. On Citus the function
 * also keeps the account's shard where it is, which `select … for update` does not.
 */
export async function lockAccount(connection: Connection, { partition, accountId }: AccountRef): Promise<void> {
  await connection.query('select lock_accounts($1, array[$2::uuid])', [partition, accountId])
}
