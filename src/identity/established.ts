import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { SignInFailedError } from './sign-in-error.ts'

export type Credential = { readonly wallet: string } | { readonly passkey: Buffer }

/**
 * Throws unless the account was opened with this wallet or passkey, or has had it for as long as a changed owner address waits. A thief with a
 * stolen session can add a passkey of his own; it must not confirm anything before the holder had the time to see it.
 */
export async function requireEstablished(
  database: Database,
  { accountId }: AccountRef,
  credential: Credential,
  cooldownMs: number,
): Promise<void> {
  const [table, column, value] =
    'wallet' in credential
      ? ['wallets', 'address', credential.wallet.toLowerCase()]
      : ['passkeys', 'credential_id', credential.passkey]
  const [row] = await database.query<{ established: boolean }>(
    `select c.added_at <= a.created_at + interval '10 seconds'
            or c.added_at <= clock_timestamp() - $3 * interval '1 millisecond' as established
       from ${table} c join accounts a on a.partition = c.partition and a.id = c.account_id
      where c.${column} = $1 and c.account_id = $2`,
    [value, accountId, cooldownMs],
  )
  if (row === undefined) throw new SignInFailedError('This wallet or passkey belongs to another account.')
  if (!row.established) {
    throw new SignInFailedError(
      'This wallet or passkey was added recently. Confirm the address with an older one, or register it without confirmation; it then takes effect after a waiting period.',
    )
  }
}
