import type { AccountRef } from '../db/account-ref.ts'
import type { Connection } from '../db/database.ts'

/** Whoever could sign in to one account signs in to another from now on. Nobody stays signed in to the first. */
export async function moveSignIns(connection: Connection, from: AccountRef, to: AccountRef): Promise<void> {
  for (const table of ['wallets', 'passkeys']) {
    await connection.query(`update ${table} set partition = $1, account_id = $2 where account_id = $3`, [
      to.partition,
      to.accountId,
      from.accountId,
    ])
  }
  await connection.query('delete from sessions where account_id = $1', [from.accountId])
}
