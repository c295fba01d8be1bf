import type { AccountRef } from '../db/account-ref.ts'
import type { Connection } from '../db/database.ts'
import { lockAccount } from '../db/lock-account.ts'
import { ServiceError } from '../errors.ts'

/**
 * Throws when the account is closed, and keeps it open until the end of the transaction. Call it before you create a key, a session or
 * any other access: otherwise a concurrent close could miss it, and a closed account would stay reachable.
 */
export async function lockOpenAccount(connection: Connection, account: AccountRef): Promise<void> {
  await lockAccount(connection, account)
  const [row] = await connection.query<{ is_closed: boolean }>(
    'select closed_at is not null as is_closed from accounts where partition = $1 and id = $2',
    [account.partition, account.accountId],
  )
  if (row?.is_closed === true)
    throw new ServiceError('session_required', 'This account was closed. Contact the operator to get access again.')
}
