import { createHash, createPublicKey, type KeyObject, timingSafeEqual, verify } from 'node:crypto'
import { SignInFailedError } from './sign-in-error.ts'

// The two WebAuthn ceremonies, without attestation. Without attestation a new key is not vouched for anyway, so it comes from the
// browser's `getPublicKey()` and no CBOR is parsed.

/** The site that a passkey must have been used on. */
export type RelyingParty = { readonly id: string; readonly origin: string }

/** COSE numbers of ES256, EdDSA, RS256. */
export const passkeyAlgorithms = [-7, -8, -257] as const
export type PasskeyAlgorithm = (typeof passkeyAlgorithms)[number]

export type Registration = {
  readonly id: string
  readonly clientDataJSON: string
  readonly authenticatorData: string
  readonly publicKey: string
  readonly publicKeyAlgorithm: number
}

export type Assertion = {
  readonly id: string
  readonly clientDataJSON: string
  readonly authenticatorData: string
  readonly signature: string
}

export type NewPasskey = {
  readonly credentialId: Buffer
  readonly publicKey: Buffer
  readonly algorithm: PasskeyAlgorithm
  readonly signCount: number
}

/** The challenge that the browser claims to answer. The caller looks up and consumes the stored one. */
export function challengeOf(clientDataJSON: string): string {
  const { challenge } = readClientData(clientDataJSON)
  return Buffer.from(challenge, 'base64url').toString('latin1')
}

/** Throws unless the key was created on this site, with user verification, and uses a supported algorithm. */
export function readRegistration(registration: Registration, party: RelyingParty): NewPasskey {
  checkClientData(registration.clientDataJSON, 'webauthn.create', party)
  const data = readAuthenticatorData(registration.authenticatorData, party)
  const credentialId = data.credentialId
  if (credentialId === undefined || !credentialId.equals(decode(registration.id))) {
    throw new PasskeyProofError('The passkey sent no id.')
  }
  const algorithm = passkeyAlgorithms.find((known) => known === registration.publicKeyAlgorithm)
  const publicKey = decode(registration.publicKey)
  if (algorithm === undefined || !fits(importKey(publicKey), algorithm)) {
    throw new PasskeyProofError('The passkey uses an unsupported signature algorithm.')
  }
  return { credentialId, publicKey, algorithm, signCount: data.signCount }
}

/** Throws unless the passkey signed the challenge on this site. Returns its new signature counter. */
export function checkAssertion(
  assertion: Assertion,
  passkey: { readonly publicKey: Buffer; readonly algorithm: PasskeyAlgorithm; readonly signCount: number },
  party: RelyingParty,
): number {
  checkClientData(assertion.clientDataJSON, 'webauthn.get', party)
  const { signCount } = readAuthenticatorData(assertion.authenticatorData, party)
  const signed = Buffer.concat([decode(assertion.authenticatorData), sha256(decode(assertion.clientDataJSON))])
  if (!isSigned(signed, decode(assertion.signature), passkey)) {
    throw new PasskeyProofError('The passkey signature is not valid.')
  }
  // Most passkeys keep no counter. A counter that does not increase means a cloned passkey.
  if ((signCount > 0 || passkey.signCount > 0) && signCount <= passkey.signCount) {
    throw new PasskeyProofError('The passkey may have been copied: its signature counter went back.')
  }
  return signCount
}

type ClientData = {
  readonly type: string
  readonly challenge: string
  readonly origin: string
  readonly crossOrigin?: boolean
}

function readClientData(encoded: string): ClientData {
  try {
    const data = JSON.parse(decode(encoded).toString('utf8')) as ClientData
    if (typeof data.challenge === 'string') return data
  } catch {
    // Reported below, like JSON without a challenge.
  }
  throw new PasskeyProofError('The browser’s answer cannot be read.')
}

function checkClientData(encoded: string, type: string, { origin }: RelyingParty): void {
  const data = readClientData(encoded)
  if (data.type !== type || data.origin !== origin || data.crossOrigin === true) {
    throw new PasskeyProofError(`The passkey was used at ${String(data.origin).slice(0, 100)}, not at ${origin}.`)
  }
}

const userPresent = 0x01
const userVerified = 0x04
const hasCredential = 0x40
const fixedLength = 37
const credentialIdLengthMin = 16
const credentialIdLengthMax = 1023

/** Hash of the relying party, flags, counter; for a new key also its id. */
function readAuthenticatorData(
  encoded: string,
  { id }: RelyingParty,
): { readonly signCount: number; readonly credentialId: Buffer | undefined } {
  const data = decode(encoded)
  if (data.length < fixedLength || !timingSafeEqual(data.subarray(0, 32), sha256(id))) {
    throw new PasskeyProofError('The passkey belongs to another site.')
  }
  const flags = data[32]!
  if ((flags & userPresent) === 0 || (flags & userVerified) === 0) {
    throw new PasskeyProofError('The device did not verify you.')
  }
  return { signCount: data.readUInt32BE(33), credentialId: (flags & hasCredential) === 0 ? undefined : readId(data) }
}

function readId(data: Buffer): Buffer | undefined {
  const start = fixedLength + 16 + 2
  if (data.length < start) return undefined
  const length = data.readUInt16BE(start - 2)
  const fits = length >= credentialIdLengthMin && length <= credentialIdLengthMax && data.length >= start + length
  return fits ? data.subarray(start, start + length) : undefined
}

function importKey(spki: Buffer): KeyObject | undefined {
  try {
    return createPublicKey({ key: spki, format: 'der', type: 'spki' })
  } catch {
    return undefined
  }
}

const rsaBitsMin = 2048
const rsaBitsMax = 8192

function fits(key: KeyObject | undefined, algorithm: PasskeyAlgorithm): boolean {
  const { asymmetricKeyType: type, asymmetricKeyDetails: details = {} } = key ?? {}
  if (algorithm === -7) return type === 'ec' && details.namedCurve === 'prime256v1'
  if (algorithm === -8) return type === 'ed25519'
  const bits = details.modulusLength ?? 0
  return type === 'rsa' && bits >= rsaBitsMin && bits <= rsaBitsMax
}

function isSigned(
  signed: Buffer,
  signature: Buffer,
  { publicKey, algorithm }: { readonly publicKey: Buffer; readonly algorithm: PasskeyAlgorithm },
): boolean {
  const key = importKey(publicKey)
  if (key === undefined) return false
  try {
    return verify(algorithm === -8 ? null : 'sha256', signed, key, signature)
  } catch {
    return false
  }
}

function decode(text: string): Buffer {
  return Buffer.from(text, 'base64url')
}

function sha256(content: Buffer | string): Buffer {
  return createHash('sha256').update(content).digest()
}

export class PasskeyProofError extends SignInFailedError {
  constructor(problem: string) {
    super(`${problem} Try again, or sign in another way.`)
  }
}
