import { randomUUID } from 'node:crypto'
import type { AccountRef } from '../db/account-ref.ts'
import type { Connection, Database } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import { createNonce, storeChallenge, takeChallenge } from './challenges.ts'
import {
  type Assertion,
  challengeOf,
  checkAssertion,
  type NewPasskey,
  type PasskeyAlgorithm,
  PasskeyProofError,
  type Registration,
  type RelyingParty,
  readRegistration,
} from './passkey-proof.ts'

export type Passkey = {
  readonly id: string
  readonly name: string
  readonly addedAt: Date
  readonly lastUsedAt: Date | undefined
}

const passkeysPerAccountMax = 20

/** A new passkey that answers a challenge of ours. The challenge is used up whatever comes of it. */
export async function proveRegistration(
  database: Database,
  registration: Registration,
  party: RelyingParty,
): Promise<NewPasskey> {
  await takeChallenge(database, challengeOf(registration.clientDataJSON), 'register')
  return readRegistration(registration, party)
}

/** The account whose passkey answered a challenge of ours. */
export async function provePasskey(database: Database, assertion: Assertion, party: RelyingParty): Promise<AccountRef> {
  await takeChallenge(database, challengeOf(assertion.clientDataJSON), 'sign_in')
  return checkPasskey(database, assertion, party)
}

/** A challenge that names an owner address, so that what the passkey signs names it too. */
export async function createPasskeyOwnerChallenge(
  database: Database,
  owner: AccountRef,
  address: string,
): Promise<{ readonly challenge: string; readonly credentialIds: readonly string[] }> {
  const credentialIds = await listCredentialIds(database, owner)
  if (credentialIds.length === 0) throw new PasskeyProofError('The account has no passkey.')
  const nonce = createNonce()
  await storeChallenge(database, nonce, 'owner', address)
  return { challenge: Buffer.from(`${nonce} ${address}`, 'latin1').toString('base64url'), credentialIds }
}

/** Throws unless a passkey answered a challenge for this address. */
export async function provePasskeyOwner(
  database: Database,
  address: string,
  assertion: Assertion,
  party: RelyingParty,
): Promise<void> {
  const [nonce = '', named] = challengeOf(assertion.clientDataJSON).split(' ')
  const stored = await takeChallenge(database, nonce, 'owner')
  if (stored !== address || named !== address) throw new PasskeyProofError('The passkey confirmed another address.')
  await checkPasskey(database, assertion, party)
}

async function checkPasskey(database: Database, assertion: Assertion, party: RelyingParty): Promise<AccountRef> {
  const credentialId = Buffer.from(assertion.id, 'base64url')
  return database.transaction(async (connection) => {
    const [row] = await connection.query<PasskeyRow>(
      `select partition, account_id, public_key, algorithm, sign_count from passkeys where credential_id = $1 for update`,
      [credentialId],
    )
    if (row === undefined) throw new PasskeyProofError('No account has this passkey.')
    const signCount = checkAssertion(
      assertion,
      { publicKey: row.public_key, algorithm: row.algorithm, signCount: Number(row.sign_count) },
      party,
    )
    await connection.query('update passkeys set sign_count = $2, last_used_at = now() where credential_id = $1', [
      credentialId,
      signCount,
    ])
    return { partition: row.partition, accountId: row.account_id }
  })
}

export async function addPasskey(
  connection: Connection,
  account: AccountRef,
  passkey: NewPasskey,
  name: string,
): Promise<void> {
  const [known] = await connection.query<{ count: number }>(
    'select count(*)::int as count from passkeys where account_id = $1',
    [account.accountId],
  )
  if (known!.count >= passkeysPerAccountMax) throw new TooManyPasskeysError()
  const added = await connection.query(
    `insert into passkeys (credential_id, id, partition, account_id, name, public_key, algorithm, sign_count, last_used_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp()) on conflict do nothing returning id`,
    [
      passkey.credentialId,
      randomUUID(),
      account.partition,
      account.accountId,
      name,
      passkey.publicKey,
      passkey.algorithm,
      passkey.signCount,
    ],
  )
  if (added.length === 0) throw new PasskeyProofError('This passkey is already registered.')
}

export async function listPasskeys(database: Database, { accountId }: AccountRef): Promise<readonly Passkey[]> {
  const rows = await database.query<{ id: string; name: string; added_at: Date; last_used_at: Date | null }>(
    'select id, name, added_at, last_used_at from passkeys where account_id = $1 order by added_at, id',
    [accountId],
  )
  return rows.map((row) => ({
    id: row.id,
    name: row.name,
    addedAt: row.added_at,
    lastUsedAt: row.last_used_at ?? undefined,
  }))
}

/** The ids by which browsers know an account's passkeys: one device is not to be registered twice. */
export async function listCredentialIds(database: Database, { accountId }: AccountRef): Promise<readonly string[]> {
  const rows = await database.query<{ credential_id: Buffer }>(
    'select credential_id from passkeys where account_id = $1',
    [accountId],
  )
  return rows.map((row) => row.credential_id.toString('base64url'))
}

/** False when the account has no such passkey. */
export async function removePasskey(connection: Connection, { accountId }: AccountRef, id: string): Promise<boolean> {
  const rows = await connection.query('delete from passkeys where id = $1 and account_id = $2 returning id', [
    id,
    accountId,
  ])
  return rows.length > 0
}

type PasskeyRow = {
  readonly partition: number
  readonly account_id: string
  readonly public_key: Buffer
  readonly algorithm: PasskeyAlgorithm
  readonly sign_count: bigint
}

export class TooManyPasskeysError extends ServiceError {
  readonly code = 'invalid_value'
  constructor() {
    super(`The account has ${passkeysPerAccountMax} passkeys, which is the maximum. Remove one first.`)
  }
}
