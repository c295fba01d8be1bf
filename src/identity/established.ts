import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { SignInFailedError } from './sign-in-error.ts'

export type Credential = { readonly wallet: string } | { readonly passkey: Buffer }

/**
 * Throws unless an owner has had both this wallet or passkey and the role for the waiting period of a changed owner address, or since
 * the account was opened. An attacker with a stolen session can add a passkey or become an owner. The other owners must have time to
 * notice before that passkey or owner can confirm an address.
 */
export async function requireEstablished(
  database: Database,
  { partition, accountId }: AccountRef,
  credential: Credential,
  cooldownMs: number,
): Promise<void> {
  const [table, column, value] =
    'wallet' in credential
      ? ['wallets', 'address', credential.wallet.toLowerCase()]
      : ['passkeys', 'credential_id', credential.passkey]
  const [row] = await database.query<{ is_old: boolean; is_owner: boolean }>(
    `select c.added_at <= e.latest as is_old, m.owner_since <= e.latest as is_owner
       from ${table} c
       join memberships m on m.partition = $4 and m.account_id = $2 and m.person_id = c.person_id and m.role = 'owner'
       join accounts a on a.partition = m.partition and a.id = m.account_id
       cross join lateral (
         select greatest(a.created_at + interval '10 seconds', clock_timestamp() - $3 * interval '1 millisecond') as latest) e
      where c.${column} = $1`,
    [value, accountId, cooldownMs, partition],
  )
  if (row === undefined)
    throw new SignInFailedError('This wallet or passkey does not belong to an owner of the account.')
  const remedy = 'or register it without confirmation; it then takes effect after a waiting period.'
  if (!row.is_old)
    throw new SignInFailedError(
      `This wallet or passkey was added recently. Confirm the address with an older one, ${remedy}`,
    )
  if (!row.is_owner)
    throw new SignInFailedError(`You became an owner recently. Let an older owner confirm the address, ${remedy}`)
}
