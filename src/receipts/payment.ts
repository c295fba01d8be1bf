import type { Keccak256 } from './crypto.ts'
import { type Hex, zeroHash } from './hex.ts'
import { hashText, hashWords, type ReceiptDomain, signedDigest } from './typed-data.ts'

/** One payment on chain for consecutive entries of an account. */
export type ReceiptPayment = {
  readonly payer: Hex
  /** Counts the payments of the account. A payment that failed keeps its number, so numbers may have gaps. */
  readonly number: bigint
  /** The numbers of the first and the last entry. */
  readonly first: bigint
  readonly last: bigint
  /** The sum of the entries' amounts, in atomic USDC. Negative: the seller pays the customer. */
  readonly value: bigint
  /** The nonce of the authorization on chain. Zeros: a wallet paid in advance over x402, and this payment transfers nothing. */
  readonly nonce: Hex
  /** The root of the account's previous payment; zeros for the first. */
  readonly previous: Hex
}

/** A payment with its proof. */
export type SignedPayment = ReceiptPayment & {
  /** The root of its tree: the issuer signs it, and the gateway puts it into its batch. */
  readonly root: Hex
  readonly signature: Hex
  readonly issuer: Hex
  /** Absent until the payment is on chain. */
  readonly batch?: Batch | undefined
}

export type BatchedPayment = SignedPayment & { readonly batch: Batch }

/** The gateway's batch that settled a payment. */
export type Batch = {
  readonly id: bigint
  readonly txHash: Hex
  readonly root: Hex
  /** Siblings from the payment's root to the batch's root. */
  readonly proof: readonly Hex[]
}

/** Whether the payment is, or will be, in a batch. One that adds up to zero, or was paid in advance, needs no transfer and never is. */
export function needsTransfer(payment: Pick<ReceiptPayment, 'value' | 'nonce'>): boolean {
  return payment.value !== 0n && !isPrepaid(payment)
}

/** Whether a wallet paid in advance over x402. The nonce proves it, because the issuer signs it. */
export function isPrepaid({ nonce }: Pick<ReceiptPayment, 'nonce'>): boolean {
  return nonce === zeroHash
}

/** Why it needs no transfer, as text for users. */
export function whyNoTransfer(payment: Pick<ReceiptPayment, 'value' | 'nonce'>): string {
  return isPrepaid(payment) ? 'was paid in advance over x402' : 'adds up to 0 USDC'
}

/**
 * How many entries one payment may cover. An account has one payment under way, so this divided by the time that a payment takes
 * (about 3 s in the sandbox) is the highest rate of requests that settlement keeps up with. The proof of a receipt reads all of them.
 */
export const paymentEntriesMax = 8_192

const paymentType =
  'Payment(address payer,uint256 number,uint256 first,uint256 last,int256 value,bytes32 nonce,bytes32 root)'

/** EIP-712's hash of the structure, without the domain. */
export function paymentStructHash(payment: ReceiptPayment & { readonly root: Hex }, keccak256: Keccak256): Uint8Array {
  const { payer, number, first, last, value, nonce, root } = payment
  return hashWords([hashText(paymentType, keccak256), payer, number, first, last, value, nonce, root], keccak256)
}

/** What the issuer signs. */
export function paymentDigest(
  payment: ReceiptPayment & { readonly root: Hex },
  domain: ReceiptDomain,
  keccak256: Keccak256,
): Uint8Array {
  return signedDigest(paymentStructHash(payment, keccak256), domain, keccak256)
}

// Half of the curve's order. Above it every signature has a second form, and only one of the two may count.
const lowHalfMax = '7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0'

/** Whether the text is `r ‖ s ‖ v` in the one form that the issuer writes. */
export function isCanonicalSignature(signature: string): boolean {
  return /^0x[0-9a-f]{128}(1b|1c)$/.test(signature) && signature.slice(66, 130) <= lowHalfMax
}
