import type { AccountRef } from '../db/account-ref.ts'
import type { Connection, Database } from '../db/database.ts'
import { createToken, hashToken } from './secret-token.ts'
import { SignInFailedError } from './sign-in-error.ts'

/** Where a link leads. The token stands behind the `#`: browsers send that part to no server and write it into no log. */
export function loginLink(publicUrl: string, token: string): string {
  return `${publicUrl}/login#token=${token}`
}

/** A token that signs in to the account once. */
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

/** Uses a token up. */
export async function takeLoginToken(database: Database, token: string): Promise<AccountRef> {
  const [row] = await database.query<{ partition: number; account_id: string }>(
    `delete from login_links where token_hash = $1 and expires_at > now() returning partition, account_id`,
    [hashToken(token)],
  )
  if (row === undefined) throw new LoginLinkGoneError()
  return { partition: row.partition, accountId: row.account_id }
}

export class LoginLinkGoneError extends SignInFailedError {
  constructor() {
    super('This link was already used or has expired. Get a new one with penny login-link.')
  }
}
