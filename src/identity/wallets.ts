import type { Connection, Database } from '../db/database.ts'
import { rowsOf } from '../db/rows.ts'
import { ServiceError } from '../errors.ts'
import { createNonce, storeChallenge, takeChallenge } from './challenges.ts'
import { SignInFailedError } from './sign-in-error.ts'
import { signInText } from './sign-in-text.ts'

export type SignInWallet = { readonly address: string; readonly addedAt: Date; readonly lastUsedAt: Date | undefined }

export type SignInMessageOptions = {
  /** The wallet compares its host with the page that requests the signature. */
  readonly publicUrl: string
  readonly chainId: number
  readonly address: string
}

const walletsPerPersonMax = 20
const statement =
  'Sign in to Penny Router. This proves that the address is yours; it cannot move money and costs no gas.'

/** An EIP-4361 message for one wallet. It is stored, and only this exact text is accepted back. */
export async function createSignInMessage(
  database: Database,
  options: SignInMessageOptions,
): Promise<{ readonly nonce: string; readonly message: string; readonly expiresAt: Date }> {
  const { nonce, message } = await writeMessage(options, statement)
  return { nonce, message, expiresAt: await storeChallenge(database, nonce, 'wallet', message) }
}

/** An EIP-4361 message in which a wallet confirms a statement. */
export async function createConfirmationMessage(
  database: Database,
  options: SignInMessageOptions,
  confirmed: string,
): Promise<string> {
  const { nonce, message } = await writeMessage(options, confirmed)
  await storeChallenge(database, nonce, 'owner', message)
  return message
}

async function writeMessage(
  { publicUrl, chainId, address }: SignInMessageOptions,
  text: string,
): Promise<{ readonly nonce: string; readonly message: string }> {
  const nonce = createNonce()
  // Loaded on first use: viem is hundreds of files and would slow the start.
  const { getAddress } = await import('viem/utils')
  const message = signInText({
    domain: new URL(publicUrl).host,
    address: getAddress(address.toLowerCase()),
    statement: text,
    uri: publicUrl,
    chainId,
    nonce,
    issuedAt: new Date().toISOString(),
  })
  return { nonce, message }
}

/**
 * Returns the address that signed. The message must equal, byte for byte, an unanswered one that we issued for this site, chain and
 * address, so none of its fields needs a check of its own.
 */
export async function proveWallet(database: Database, message: string, signature: string): Promise<string> {
  return prove(database, message, signature, 'wallet')
}

/** Returns the wallet that confirmed this statement. */
export async function proveWalletConfirmation(
  database: Database,
  message: string,
  signature: string,
  confirmed: string,
): Promise<string> {
  const wallet = await prove(database, message, signature, 'owner')
  if (message.includes(`\n${confirmed}\n`)) return wallet
  throw new WalletProofError('The wallet confirmed something else.')
}

async function prove(
  database: Database,
  message: string,
  signature: string,
  purpose: 'wallet' | 'owner',
): Promise<string> {
  const nonce = /\nNonce: ([0-9a-f]{40})\n/.exec(message)?.[1]
  if (nonce === undefined) throw new WalletProofError('The signed message has no nonce of this service.')
  const stored = await takeChallenge(database, nonce, purpose)
  if (stored !== message) throw new WalletProofError('The signed message differs from the one that was requested.')
  const address = stored.split('\n', 2)[1]!.toLowerCase()
  if ((await signerOf(message, signature)) !== address) {
    throw new WalletProofError(
      'The signature is not from the address in the message. Smart-contract wallets cannot sign in.',
    )
  }
  return address
}

async function signerOf(message: string, signature: string): Promise<string | undefined> {
  const { recoverMessageAddress } = await import('viem/utils')
  try {
    return (await recoverMessageAddress({ message, signature: signature as `0x${string}` })).toLowerCase()
  } catch {
    // Not a valid signature at all.
    return undefined
  }
}

/** The id of the person with this wallet. Also records its use. */
export async function findWalletPerson(connection: Connection, address: string): Promise<string | undefined> {
  const [row] = await connection.query<{ person_id: string }>(
    'update wallets set last_used_at = now() where address = $1 returning person_id',
    [address],
  )
  return row?.person_id
}

/** Adds the wallet unless another person has it. Returns the id of the person who has it. */
export async function addWallet(connection: Connection, personId: string, address: string): Promise<string> {
  const [known] = await connection.query<{ count: number }>(
    'select count(*)::int as count from wallets where person_id = $1',
    [personId],
  )
  if (known!.count >= walletsPerPersonMax)
    throw new ServiceError(
      'invalid_value',
      `You have ${walletsPerPersonMax} wallets, which is the maximum. Remove one first.`,
    )
  await connection.query(
    `insert into wallets (address, person_id, last_used_at) values ($1, $2, clock_timestamp()) on conflict do nothing`,
    [address, personId],
  )
  return (await findWalletPerson(connection, address))!
}

export async function listWallets(database: Database, personId: string): Promise<readonly SignInWallet[]> {
  return rowsOf<SignInWallet>(
    database.query(
      'select address, added_at, last_used_at from wallets where person_id = $1 order by added_at, address',
      [personId],
    ),
  )
}

/** False when the person has no such wallet. */
export async function removeWallet(connection: Connection, personId: string, address: string): Promise<boolean> {
  const rows = await connection.query('delete from wallets where address = $1 and person_id = $2 returning address', [
    address.toLowerCase(),
    personId,
  ])
  return rows.length > 0
}

export class WalletProofError extends SignInFailedError {
  constructor(problem: string) {
    super(`${problem} Start the sign-in again.`)
  }
}
