import type { AccountRef } from '../db/account-ref.ts'
import type { Connection } from '../db/database.ts'
import { lockAccount } from '../db/lock-account.ts'
import { ServiceError } from '../errors.ts'

/**
 * For whoever gives an account a key, a session or another way in: throws when it is closed, and until the end of the transaction
 * nobody can close it. Without it, what was asked for before the closing could be written after it, and the account would not be shut.
 */
export async function lockOpenAccount(connection: Connection, account: AccountRef): Promise<void> {
  await lockAccount(connection, account)
  const [row] = await connection.query<{ is_closed: boolean }>(
    'select closed_at is not null as is_closed from accounts where partition = $1 and id = $2',
    [account.partition, account.accountId],
  )
  if (row?.is_closed === true) throw new AccountClosedError()
}

export class AccountClosedError extends ServiceError {
  readonly code = 'session_required'
  constructor() {
    super('This account was closed. Contact the operator to get access again.')
  }
}
