import type { AccountRef } from '../db/account-ref.ts'
import type { Connection, Database } from '../db/database.ts'
import { rowOf } from '../db/rows.ts'
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
  const row = await rowOf<{ readonly isOld: boolean; readonly isOwner: boolean }>(
    database.query(
      `select c.added_at <= e.latest as is_old, m.owner_since <= e.latest as is_owner
       from ${table} c
       join memberships m on m.partition = $4 and m.account_id = $2 and m.person_id = c.person_id and m.role = 'owner'
       join accounts a on a.partition = m.partition and a.id = m.account_id
       cross join lateral (
         select greatest(a.created_at + interval '10 seconds', clock_timestamp() - $3 * interval '1 millisecond') as latest) e
      where c.${column} = $1`,
      [value, accountId, cooldownMs, partition],
    ),
  )
  if (row === undefined)
    throw new SignInFailedError('This wallet or passkey does not belong to an owner of the account.')
  const remedy = 'or register it without confirmation; it then takes effect after a waiting period.'
  if (!row.isOld)
    throw new SignInFailedError(
      `This wallet or passkey was added recently. Confirm the address with an older one, ${remedy}`,
    )
  if (!row.isOwner)
    throw new SignInFailedError(`You became an owner recently. Let an older owner confirm the address, ${remedy}`)
}

type EstablishedCredential = { readonly id: string; readonly credential_id: Buffer | null }

/**
 * The wallets (by address) and passkeys (by id) that a person has had for the waiting period, or since the first sign-in. None where
 * addresses do not wait: there is nothing to protect.
 */
export async function listEstablished(
  connection: Connection,
  personId: string,
  cooldownMs: number,
): Promise<readonly EstablishedCredential[]> {
  if (cooldownMs === 0) return []
  return connection.query<EstablishedCredential>(
    `select c.id, c.credential_id
       from people p
       join (select person_id, address as id, null::bytea as credential_id, added_at from wallets
             union all select person_id, id::text, credential_id, added_at from passkeys) c on c.person_id = p.id
      where p.id = $1 and c.added_at <= greatest(p.created_at + interval '10 seconds', clock_timestamp() - $2 * interval '1 millisecond')`,
    [personId, cooldownMs],
  )
}

type Removal = { readonly id: string; readonly confirmedBy: Credential | undefined }

/**
 * Throws unless this wallet or passkey is new, or an established one confirmed the removal. Otherwise a stolen session could add its own,
 * remove the others, name another address for withdrawals and wait: the person could not sign in to cancel it.
 */
export async function requireRemovable(
  connection: Connection,
  personId: string,
  { id, confirmedBy }: Removal,
  cooldownMs: number,
): Promise<void> {
  const established = await listEstablished(connection, personId, cooldownMs)
  if (!established.some((credential) => credential.id === id)) return
  if (confirmedBy === undefined)
    throw new SignInFailedError(
      'This removal needs a confirmation by a wallet or passkey that you have had for the waiting period. Nothing was removed.',
    )
  const isConfirmed = established.some((credential) =>
    'wallet' in confirmedBy
      ? credential.id === confirmedBy.wallet
      : credential.credential_id?.equals(confirmedBy.passkey) === true,
  )
  if (!isConfirmed)
    throw new SignInFailedError(
      'The wallet or passkey that confirmed this was added recently. Confirm with an older one, or wait. Nothing was removed.',
    )
}
