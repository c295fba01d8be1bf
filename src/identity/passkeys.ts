import { randomUUID } from 'node:crypto'
import type { Connection, Database } from '../db/database.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
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

const passkeysPerPersonMax = 20

/** Verifies a new passkey. Consumes the challenge even when the proof fails. */
export async function proveRegistration(
  database: Database,
  registration: Registration,
  party: RelyingParty,
): Promise<NewPasskey> {
  await takeChallenge(database, challengeOf(registration.clientDataJSON), 'register')
  return readRegistration(registration, party)
}

/** Verifies an assertion and returns the id of the passkey's person. */
export async function provePasskey(database: Database, assertion: Assertion, party: RelyingParty): Promise<string> {
  await takeChallenge(database, challengeOf(assertion.clientDataJSON), 'sign_in')
  return checkPasskey(database, assertion, party)
}

/** The challenge contains the statement, so the passkey's signature covers it. */
export async function createPasskeyConfirmation(
  database: Database,
  personId: string,
  confirmed: string,
): Promise<{ readonly challenge: string; readonly credentialIds: readonly string[] }> {
  const credentialIds = await listCredentialIds(database, personId)
  if (credentialIds.length === 0) throw new PasskeyProofError('You have no passkey.')
  const nonce = createNonce()
  await storeChallenge(database, nonce, 'owner', confirmed)
  return { challenge: Buffer.from(`${nonce} ${confirmed}`, 'latin1').toString('base64url'), credentialIds }
}

/** Throws unless a passkey confirmed this statement. */
export async function provePasskeyConfirmation(
  database: Database,
  confirmed: string,
  assertion: Assertion,
  party: RelyingParty,
): Promise<void> {
  const challenge = challengeOf(assertion.clientDataJSON)
  const [nonce = ''] = challenge.split(' ', 1)
  const stored = await takeChallenge(database, nonce, 'owner')
  if (stored !== confirmed || challenge !== `${nonce} ${confirmed}`)
    throw new PasskeyProofError('The passkey confirmed something else.')
  await checkPasskey(database, assertion, party)
}

async function checkPasskey(database: Database, assertion: Assertion, party: RelyingParty): Promise<string> {
  const credentialId = Buffer.from(assertion.id, 'base64url')
  return database.transaction(async (connection) => {
    const row = await rowOf<StoredPasskey>(
      connection.query(
        `select person_id, public_key, algorithm, sign_count from passkeys where credential_id = $1 for update`,
        [credentialId],
      ),
    )
    if (row === undefined) throw new PasskeyProofError('No account has this passkey.')
    const signCount = checkAssertion(assertion, { ...row, signCount: Number(row.signCount) }, party)
    await connection.query('update passkeys set sign_count = $2, last_used_at = now() where credential_id = $1', [
      credentialId,
      signCount,
    ])
    return row.personId
  })
}

export async function addPasskey(
  connection: Connection,
  personId: string,
  passkey: NewPasskey,
  name: string,
): Promise<void> {
  const [known] = await connection.query<{ count: number }>(
    'select count(*)::int as count from passkeys where person_id = $1',
    [personId],
  )
  if (known!.count >= passkeysPerPersonMax)
    throw new ServiceError(
      'invalid_value',
      `You have ${passkeysPerPersonMax} passkeys, which is the maximum. Remove one first.`,
    )
  const added = await connection.query(
    `insert into passkeys (credential_id, id, person_id, name, public_key, algorithm, sign_count, last_used_at)
     values ($1, $2, $3, $4, $5, $6, $7, clock_timestamp()) on conflict do nothing returning id`,
    [passkey.credentialId, randomUUID(), personId, name, passkey.publicKey, passkey.algorithm, passkey.signCount],
  )
  if (added.length === 0) throw new PasskeyProofError('This passkey is already registered.')
}

export async function listPasskeys(database: Database, personId: string): Promise<readonly Passkey[]> {
  return rowsOf<Passkey>(
    database.query('select id, name, added_at, last_used_at from passkeys where person_id = $1 order by added_at, id', [
      personId,
    ]),
  )
}

/** Browsers need these ids to refuse to register a device twice. */
export async function listCredentialIds(database: Database, personId: string): Promise<readonly string[]> {
  const rows = await rowsOf<{ readonly credentialId: Buffer }>(
    database.query('select credential_id from passkeys where person_id = $1', [personId]),
  )
  return rows.map((row) => row.credentialId.toString('base64url'))
}

/** False when the person has no such passkey. */
export async function removePasskey(connection: Connection, personId: string, id: string): Promise<boolean> {
  const rows = await connection.query('delete from passkeys where id = $1 and person_id = $2 returning id', [
    id,
    personId,
  ])
  return rows.length > 0
}

type StoredPasskey = {
  readonly personId: string
  readonly publicKey: Buffer
  readonly algorithm: PasskeyAlgorithm
  readonly signCount: bigint
}
