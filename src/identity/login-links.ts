import type { AccountRef } from '../db/account-ref.ts'
import type { Connection, Database } from '../db/database.ts'
import { rowOf } from '../db/rows.ts'
import { createToken, hashToken } from './secret-token.ts'
import { SignInFailedError } from './sign-in-error.ts'

/** The token is in the fragment: browsers do not send it to servers, so it reaches no log. */
export function loginLink(publicUrl: string, token: string): string {
  return `${publicUrl}/login#token=${token}`
}

/** A one-time token that signs in to the account. */
export async function createLoginToken(
  connection: Connection,
  account: AccountRef,
  secondsMax: number,
): Promise<string> {
  const token = createToken()
  await connection.query(
    `insert into login_links (token_hash, partition, account_id, expires_at)
     values ($1, $2, $3, clock_timestamp() + make_interval(secs => $4))`,
    [hashToken(token), account.partition, account.accountId, secondsMax],
  )
  return token
}

/** Consumes a token. */
export async function takeLoginToken(database: Database, token: string): Promise<AccountRef> {
  const row = await rowOf<AccountRef>(
    database.query(
      `delete from login_links where token_hash = $1 and expires_at > now() returning partition, account_id`,
      [hashToken(token)],
    ),
  )
  if (row === undefined)
    throw new SignInFailedError('This link was already used or has expired. Get a new one with penny login-link.')
  return row
}
