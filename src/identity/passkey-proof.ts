import { createHash, createPublicKey, type KeyObject, timingSafeEqual, verify } from 'node:crypto'
import { CborReader, MalformedCborError } from './cbor.ts'
import { SignInFailedError } from './sign-in-error.ts'

// The two WebAuthn ceremonies, without attestation: nothing vouches for a new key but the authenticator data that has it.

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
  const { credential, signCount } = readAuthenticatorData(registration.authenticatorData, party)
  if (credential === undefined || !credential.id.equals(decode(registration.id))) {
    throw new PasskeyProofError('The passkey sent no id.')
  }
  const algorithm = passkeyAlgorithms.find((known) => known === registration.publicKeyAlgorithm)
  const publicKey = decode(registration.publicKey)
  const key = importKey(publicKey)
  if (algorithm === undefined || key === undefined || !fits(key, algorithm)) {
    throw new PasskeyProofError('The passkey uses an unsupported signature algorithm.')
  }
  if (!isSameKey(key, credential.key, algorithm)) throw new PasskeyProofError('The passkey has another public key.')
  return { credentialId: credential.id, publicKey, algorithm, signCount }
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
  readonly crossOrigin?: unknown
  readonly topOrigin?: unknown
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
  // Our pages are never inside a page of another site.
  const isOnTop = (data.crossOrigin ?? false) === false && (data.topOrigin ?? origin) === origin
  if (data.type !== type || data.origin !== origin || !isOnTop) {
    throw new PasskeyProofError(`The passkey was used at ${String(data.origin).slice(0, 100)}, not at ${origin}.`)
  }
}

const userPresent = 0x01
const userVerified = 0x04
const canBeBackedUp = 0x08
const isBackedUp = 0x10
const hasCredential = 0x40
const hasExtensions = 0x80
const fixedLength = 37
const credentialIdLengthMin = 16
const credentialIdLengthMax = 1023

type NewCredential = { readonly id: Buffer; readonly key: ReadonlyMap<unknown, unknown> }

/** Hash of the relying party, flags, counter; for a new key also its id and the key. Nothing may follow that the flags do not name. */
function readAuthenticatorData(
  encoded: string,
  { id }: RelyingParty,
): { readonly signCount: number; readonly credential: NewCredential | undefined } {
  const data = decode(encoded)
  if (data.length < fixedLength || !timingSafeEqual(data.subarray(0, 32), sha256(id))) {
    throw new PasskeyProofError('The passkey belongs to another site.')
  }
  const flags = data[32]!
  if ((flags & userPresent) === 0 || (flags & userVerified) === 0) {
    throw new PasskeyProofError('The device did not verify you.')
  }
  try {
    if ((flags & isBackedUp) !== 0 && (flags & canBeBackedUp) === 0) throw new MalformedCborError()
    const reader = new CborReader(data.subarray(fixedLength))
    const credential = (flags & hasCredential) === 0 ? undefined : readCredential(reader)
    if ((flags & hasExtensions) !== 0 && !(reader.item() instanceof Map)) throw new MalformedCborError()
    reader.end()
    return { signCount: data.readUInt32BE(33), credential }
  } catch (error) {
    if (error instanceof MalformedCborError) throw new PasskeyProofError('The device’s answer is not well-formed.')
    throw error
  }
}

function readCredential(reader: CborReader): NewCredential {
  const length = reader.bytes(18).readUInt16BE(16)
  if (length < credentialIdLengthMin || length > credentialIdLengthMax) throw new MalformedCborError()
  const id = reader.bytes(length)
  const key = reader.item()
  if (!(key instanceof Map)) throw new MalformedCborError()
  return { id, key }
}

/** Compares with the key in COSE form (RFC 9053) that the authenticator sent. */
function isSameKey(key: KeyObject, cose: ReadonlyMap<unknown, unknown>, algorithm: PasskeyAlgorithm): boolean {
  const { x, y, n, e } = key.export({ format: 'jwk' })
  const expected: Record<PasskeyAlgorithm, readonly (readonly [number, number | string | undefined])[]> = {
    [-7]: [
      [1, 2],
      [-1, 1],
      [-2, x],
      [-3, y],
    ],
    [-8]: [
      [1, 1],
      [-1, 6],
      [-2, x],
    ],
    [-257]: [
      [1, 3],
      [-1, n],
      [-2, e],
    ],
  }
  return [[3, algorithm] as const, ...expected[algorithm]].every(([label, value]) => {
    const sent = cose.get(label)
    return (Buffer.isBuffer(sent) ? sent.toString('base64url') : sent) === value
  })
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

function fits(key: KeyObject, algorithm: PasskeyAlgorithm): boolean {
  const { asymmetricKeyType: type, asymmetricKeyDetails: details = {} } = key
  if (algorithm === -7) return type === 'ec' && details.namedCurve === 'prime256v1'
  if (algorithm === -8) return type === 'ed25519'
  const bits = details.modulusLength ?? 0
  // With an exponent of 1 the signature is the message: anyone could sign.
  return type === 'rsa' && bits >= rsaBitsMin && bits <= rsaBitsMax && (details.publicExponent ?? 0n) >= 3n
}

export function isSigned(
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
