import { type Address, type Hex, toHex } from 'viem'
import { encodeWords, keccak256 } from './keccak.ts'
import { recoverSigner, typedDataDigest } from './signature.ts'
import { domainName, domainVersion, type GatewayTerms, lowerCase, scheme } from './terms.ts'

/** The signed content of a payment, and the signature. */
export type SignedPayment = {
  readonly payer: Address
  readonly payee: Address
  readonly value: bigint
  readonly validAfter: bigint
  readonly validBefore: bigint
  readonly nonce: Hex
  readonly signature: Hex
}

/** A payment that may be settled. Everything is checked except the payer's balance and whether the nonce is new. */
export type Payment = SignedPayment & { readonly receiptHash: Hex | undefined }

/** Circle's reasons, word for word; the last two are ours. */
export type PaymentReason =
  | 'unsupported_scheme'
  | 'unsupported_network'
  | 'unsupported_asset'
  | 'unsupported_domain'
  | 'wallet_not_found'
  | 'invalid_payload'
  | 'address_mismatch'
  | 'amount_mismatch'
  | 'self_transfer'
  | 'authorization_not_yet_valid'
  | 'authorization_expired'
  | 'authorization_validity_too_short'
  | 'invalid_signature'
  | 'nonce_already_used'
  | 'insufficient_balance'
  | 'payee_not_allowed'
  | 'amount_too_small'

// Circle's rule: a batch may take days, and the authorization must still be valid then.
export const validitySecondsMin = 7n * 24n * 3600n
const wordMax = 2n ** 256n - 1n
const zeroAddress = `0x${'0'.repeat(40)}`

const typeHash = keccak256(
  toHex(
    'TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)',
  ),
)

/** Parses the body of `verify` and `settle`, and makes all stateless checks. `nowMs` is the gateway's clock. */
export function readPayment(body: unknown, terms: GatewayTerms, nowMs: number): Payment {
  const { paymentPayload, paymentRequirements } = readObject(body)
  const requirements = readRequirements(readObject(paymentRequirements), terms)
  const payload = readObject(paymentPayload)
  if (payload.x402Version !== 2) throw new PaymentRefusedError('invalid_payload')
  if (payload.accepted !== undefined) {
    const accepted = readRequirements(readObject(payload.accepted), terms)
    if (accepted.payTo !== requirements.payTo) throw new PaymentRefusedError('address_mismatch')
    if (accepted.amount !== requirements.amount) throw new PaymentRefusedError('amount_mismatch')
  }
  const payment = readAuthorization(payload)
  checkAgreement(payment, requirements, terms)
  checkWindow(payment, BigInt(Math.floor(nowMs / 1000)))
  if (!isSignedByPayer(payment, terms)) throw new PaymentRefusedError('invalid_signature', payment.payer)
  return payment
}

export function isSignedByPayer(payment: SignedPayment, terms: GatewayTerms): boolean {
  const { payer, payee, value, validAfter, validBefore, nonce, signature } = payment
  const structHash = keccak256(encodeWords([typeHash, payer, payee, value, validAfter, validBefore, nonce]))
  return recoverSigner(typedDataDigest(terms.domainSeparator, structHash), signature) === payer
}

type Requirements = { readonly payTo: Address; readonly amount: bigint }

function readRequirements(fields: Fields, terms: GatewayTerms): Requirements {
  if (fields.scheme !== scheme) throw new PaymentRefusedError('unsupported_scheme')
  if (fields.network !== terms.network) throw new PaymentRefusedError('unsupported_network')
  if (readAddress(fields.asset) !== terms.usdc) throw new PaymentRefusedError('unsupported_asset')
  const extra = readObject(fields.extra)
  if (extra.name !== domainName || extra.version !== domainVersion) throw new PaymentRefusedError('unsupported_domain')
  if (readAddress(extra.verifyingContract) !== terms.wallet) throw new PaymentRefusedError('wallet_not_found')
  return { payTo: readAddress(fields.payTo), amount: readNumber(fields.amount) }
}

function readAuthorization(payload: Fields): Payment {
  const { authorization, signature } = readObject(payload.payload)
  const fields = readObject(authorization)
  return {
    payer: readAddress(fields.from),
    payee: readAddress(fields.to),
    value: readNumber(fields.value),
    validAfter: readNumber(fields.validAfter),
    validBefore: readNumber(fields.validBefore),
    nonce: readHash(fields.nonce),
    signature: readHex(signature),
    receiptHash: readReceiptHash(payload.extensions),
  }
}

/** Our only extension: the hash of the receipt for what is paid, which the batch's root will prove. */
function readReceiptHash(extensions: unknown): Hex | undefined {
  if (extensions === undefined || extensions === null) return undefined
  const { receipt } = readObject(extensions)
  return receipt === undefined ? undefined : readHash(readObject(receipt).hash)
}

function checkAgreement(payment: Payment, { payTo, amount }: Requirements, terms: GatewayTerms): void {
  const { payer, payee, value } = payment
  if (payee !== payTo) throw new PaymentRefusedError('address_mismatch', payer)
  if (value !== amount) throw new PaymentRefusedError('amount_mismatch', payer)
  if (payer === payee) throw new PaymentRefusedError('self_transfer', payer)
  // The contract would skip these rows.
  if (value === 0n || payee === zeroAddress || payee === terms.wallet) {
    throw new PaymentRefusedError('invalid_payload', payer)
  }
}

function checkWindow({ payer, validAfter, validBefore }: Payment, now: bigint): void {
  if (now <= validAfter) throw new PaymentRefusedError('authorization_not_yet_valid', payer)
  if (now >= validBefore) throw new PaymentRefusedError('authorization_expired', payer)
  if (validBefore < now + validitySecondsMin) throw new PaymentRefusedError('authorization_validity_too_short', payer)
}

type Fields = Readonly<Record<string, unknown>>

function readObject(value: unknown): Fields {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Fields
  throw new PaymentRefusedError('invalid_payload')
}

function readAddress(value: unknown): Address {
  if (typeof value === 'string' && /^0x[0-9a-fA-F]{40}$/.test(value)) return lowerCase(value)
  throw new PaymentRefusedError('invalid_payload')
}

function readHash(value: unknown): Hex {
  if (typeof value === 'string' && /^0x[0-9a-fA-F]{64}$/.test(value)) return lowerCase(value)
  throw new PaymentRefusedError('invalid_payload')
}

function readHex(value: unknown): Hex {
  if (typeof value === 'string' && /^0x(?:[0-9a-fA-F]{2}){1,1024}$/.test(value)) return lowerCase(value)
  throw new PaymentRefusedError('invalid_payload')
}

/** An unsigned 256-bit integer as decimal text. */
function readNumber(value: unknown): bigint {
  if (typeof value === 'string' && /^\d{1,78}$/.test(value)) {
    const number = BigInt(value)
    if (number <= wordMax) return number
  }
  throw new PaymentRefusedError('invalid_payload')
}

export class PaymentRefusedError extends Error {
  readonly reason: PaymentReason
  readonly payer: Address | undefined
  constructor(reason: PaymentReason, payer?: Address) {
    super(`The payment was refused: ${reason}.`)
    this.name = 'PaymentRefusedError'
    this.reason = reason
    this.payer = payer
  }
}
