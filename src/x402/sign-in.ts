import { randomBytes } from 'node:crypto'
import { z } from 'zod'
import type { Database } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import { signInText } from '../identity/sign-in-text.ts'
import { type Address, checksummed } from '../signer/address.ts'
import { keccak256 } from '../signer/keccak.ts'
import { recoverAddress } from '../signer/secp256k1.ts'
import { decodeHeader } from './header.ts'
import type { X402Terms } from './terms.ts'

// The extension sign-in-with-x (CAIP-122): a wallet proves its address, so that its credit can be counted and spent. The challenge in a
// 402 is random and not stored, so it costs us nothing. Only used nonces are stored, until their messages have expired.

const validMs = 5 * 60_000
const clockSkewMsMax = 60_000
const statement = 'Use the credit of this wallet at Penny Router. This signature moves no money.'

/** The extension as it appears in a 402. */
export function signInExtension(terms: X402Terms, uri: string, nowMs: number): object {
  return {
    info: {
      domain: new URL(terms.publicUrl).host,
      uri,
      statement,
      version: '1',
      nonce: randomBytes(16).toString('hex'),
      issuedAt: new Date(nowMs).toISOString(),
      expirationTime: new Date(nowMs + validMs).toISOString(),
    },
    supportedChains: [{ chainId: terms.network, type: 'eip191' }],
    schema: signInSchema,
  }
}

const text = { type: 'string' }
const signInSchema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  properties: Object.fromEntries(
    ['domain', 'address', 'uri', 'version', 'chainId', 'type', 'nonce', 'issuedAt', 'signature'].map((name) => [
      name,
      text,
    ]),
  ),
  required: ['domain', 'address', 'uri', 'version', 'chainId', 'type', 'nonce', 'issuedAt', 'signature'],
}

const shape = z.object({
  domain: z.string(),
  address: z.string().regex(/^0x[0-9a-fA-F]{40}$/),
  statement: z.literal(statement),
  // A space or a line break would make another text of it, in which the wallet shows other fields.
  uri: z
    .string()
    .max(500)
    .regex(/^[!-~]+$/),
  version: z.literal('1'),
  chainId: z.string(),
  type: z.literal('eip191'),
  nonce: z.string().regex(/^[A-Za-z0-9]{8,100}$/),
  issuedAt: z.iso.datetime(),
  expirationTime: z.iso.datetime(),
  notBefore: z.undefined().optional(),
  requestId: z.undefined().optional(),
  resources: z.undefined().optional(),
  signature: z.string().regex(/^0x[0-9a-fA-F]{130}$/),
})

/** A message that a wallet signed. It proves the address once: see `useSignIn`. */
export type WalletSignIn = { readonly address: Address; readonly nonce: string; readonly expiresAt: Date }

/** Reads the `SIGN-IN-WITH-X` header and checks its signature. Writes nothing. Throws `SignInRefusedError`. */
export function readSignIn(header: string, terms: X402Terms, nowMs: number): WalletSignIn {
  const parsed = shape.safeParse(decodeHeader(header))
  if (!parsed.success) throw new SignInRefusedError('its format is not that of the challenge in the 402')
  const proof = parsed.data
  const { host, origin } = new URL(terms.publicUrl)
  if (proof.domain !== host || URL.parse(proof.uri)?.origin !== origin) {
    throw new SignInRefusedError(`it was signed for another site, expected ${host}`)
  }
  if (proof.chainId !== terms.network)
    throw new SignInRefusedError(`it was signed for another chain than ${terms.network}`)
  const issuedMs = Date.parse(proof.issuedAt)
  const expiresMs = Math.min(Date.parse(proof.expirationTime), issuedMs + validMs)
  if (issuedMs > nowMs + clockSkewMsMax) throw new SignInRefusedError('its time is in the future')
  if (expiresMs < nowMs) throw new SignInRefusedError('it is older than five minutes')
  const address = proof.address.toLowerCase() as Address
  const chainId = proof.chainId.split(':')[1]!
  const message = signInText({ ...proof, address: checksummed(address), chainId })
  const digest = keccak256(`\u0019Ethereum Signed Message:\n${Buffer.byteLength(message)}${message}`)
  if (recoverAddress(digest, proof.signature.toLowerCase()) !== address) {
    throw new SignInRefusedError('the signature is not that of the address')
  }
  return { address, nonce: `${address} ${proof.nonce}`, expiresAt: new Date(expiresMs + clockSkewMsMax) }
}

/** Throws when the message was used before. Called before its wallet is admitted: a replay must not use up the wallet's rate. */
export async function refuseUsedSignIn(database: Database, { nonce }: WalletSignIn): Promise<void> {
  const [used] = await database.queryPrepared('find_x402_sign_in', 'select from x402_sign_ins where nonce = $1', [
    nonce,
  ])
  if (used !== undefined) throw new SignInRefusedError('it was used before')
}

/** Each message can be used once. Called when its wallet is admitted: this writes a row, and wallets are free. */
export async function useSignIn(database: Database, { nonce, expiresAt }: WalletSignIn): Promise<void> {
  const rows = await database.query(
    'insert into x402_sign_ins (nonce, expires_at) values ($1, $2) on conflict do nothing returning nonce',
    [nonce, expiresAt],
  )
  if (rows.length === 0) throw new SignInRefusedError('it was used before')
}

/** Deletes used nonces whose message has expired: the message is now refused because of its time. */
export async function deleteExpiredWalletSignIns(database: Database): Promise<void> {
  await database.query('delete from x402_sign_ins where expires_at < now()')
}

export class SignInRefusedError extends ServiceError {
  constructor(problem: string) {
    super('sign_in_failed', `The SIGN-IN-WITH-X header was refused: ${problem}. Sign the challenge of a new 402.`)
  }
}
