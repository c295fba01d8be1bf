import { format } from '../money/usdc.ts'
import type { Keccak256, ReceiptCrypto } from './crypto.ts'
import { createEntryHasher, type Entry } from './entry.ts'
import { toHex } from './hex.ts'
import { isCanonicalSignature, needsTransfer, paymentDigest, type SignedPayment, whyNoTransfer } from './payment.ts'
import { batchRootOfProof, rootOfProof } from './payment-tree.ts'
import { type CoveringPayment, type Receipt, readReceipt } from './receipt.ts'
import type { ReceiptDomain } from './typed-data.ts'

export type Check<Name extends string = string> = {
  readonly name: Name
  /** False only when something is wrong. */
  readonly ok: boolean
  /** There is nothing to check yet; `ok` is true. */
  readonly pending: boolean
  /** One line for users. */
  readonly detail: string
}

export type ReceiptCheck = Check<'hash' | 'signature' | 'amounts' | 'payment' | 'inclusion'>

/**
 * Verifies a receipt by itself. The caller checks what the receipt cannot prove: that it trusts the issuer, and that the batch is on
 * the chain. Throws an InvalidReceiptError when the value is not a receipt at all.
 */
export async function verifyReceipt(value: unknown, crypto: ReceiptCrypto): Promise<readonly ReceiptCheck[]> {
  const receipt = readReceipt(value)
  const { entry, domain, payment } = receipt
  const hash = createEntryHasher(domain, crypto.keccak256)(entry)
  return [
    checkHash(receipt, hash),
    payment === undefined
      ? pending('signature', 'Not signed yet: the issuer signs payments, and no payment covers this entry.')
      : await checkSignature(payment, domain, crypto),
    checkAmounts(entry, payment),
    payment === undefined
      ? pending('payment', 'No payment covers this entry yet.')
      : checkPayment(entry, hash, payment, crypto.keccak256),
    checkInclusion(payment, crypto.keccak256),
  ]
}

function checkHash({ hash }: Receipt, computed: Uint8Array): ReceiptCheck {
  const found = toHex(computed)
  return found === hash
    ? passed('hash', `The entry hashes to ${hash}.`)
    : failed('hash', `The entry hashes to ${found}, the receipt says ${hash}.`)
}

async function checkSignature(
  payment: SignedPayment,
  domain: ReceiptDomain,
  crypto: ReceiptCrypto,
): Promise<ReceiptCheck> {
  const problem = await signatureProblem(payment, domain, crypto)
  return problem === undefined
    ? passed('signature', `Payment ${payment.number} is signed by ${payment.issuer}.`)
    : failed('signature', problem)
}

/** The problem with the signature of a payment; undefined when its issuer made it. */
export async function signatureProblem(
  payment: SignedPayment,
  domain: ReceiptDomain,
  crypto: ReceiptCrypto,
): Promise<string | undefined> {
  const { number, issuer, signature } = payment
  if (!isCanonicalSignature(signature)) return `The signature of payment ${number} is malformed.`
  const signer = await crypto.recoverAddress(paymentDigest(payment, domain, crypto.keccak256), signature)
  if (signer === issuer) return undefined
  return `Payment ${number} is signed by ${signer ?? 'no valid key'}, not by ${issuer}.`
}

function checkAmounts(entry: Entry, payment: SignedPayment | undefined): ReceiptCheck {
  const problem = amountProblem(entry)
  if (problem !== undefined) return failed('amounts', problem)
  if (payment !== undefined && payment.first === payment.last && payment.value !== entry.amount) {
    const amounts = `${format(entry.amount)} USDC, but its payment ${format(payment.value)} USDC`
    return failed('amounts', `The only entry of payment ${payment.number} has ${amounts}.`)
  }
  const { amount, quote, kind } = entry
  if (amount < 0n) return passed('amounts', `Gave back ${format(-amount)} USDC.`)
  const quoted = kind === 'request' ? `, quoted ${format(quote)} USDC` : ''
  return passed('amounts', `Charged ${format(amount)} USDC${quoted}.`)
}

/** The problem with the amounts of an entry by itself; undefined when they are possible. */
export function amountProblem(entry: Entry): string | undefined {
  const { number, kind, status, amount, promptTokens, completionTokens, searchCalls, quote } = entry
  if (kind === 'request') {
    if (amount < 0n) return `Entry ${number} is a request with a negative charge.`
    return status === 'refused' && amount !== 0n ? `Entry ${number} charges for a refused request.` : undefined
  }
  if (kind === 'refund' && amount > 0n) return `Entry ${number} is a refund that charges.`
  const used = promptTokens + completionTokens + searchCalls + quote
  return used === 0n ? undefined : `Entry ${number} is a correction, but has usage of its own.`
}

function checkPayment(entry: Entry, hash: Uint8Array, payment: CoveringPayment, keccak256: Keccak256): ReceiptCheck {
  const { number, first, last, root } = payment
  if (entry.payer !== payment.payer) {
    return failed('payment', `The entry belongs to ${entry.payer}, the payment to ${payment.payer}.`)
  }
  if (entry.number < first || entry.number > last) {
    return failed('payment', `Payment ${number} covers entries ${first} to ${last}, not entry ${entry.number}.`)
  }
  const found = rootOfProof(payment, { number: entry.number, hash }, payment.proof, keccak256)
  if (found === root) {
    const place = `number ${entry.number - first + 1n} of the ${last - first + 1n} entries`
    return passed('payment', `Entry ${entry.number} is ${place} under the root ${root} of payment ${number}.`)
  }
  if (found === undefined) return failed('payment', `The proof has the wrong length for the entry's place.`)
  return failed('payment', `The proof leads to the root ${found}, payment ${number} has ${root}.`)
}

function checkInclusion(payment: SignedPayment | undefined, keccak256: Keccak256): ReceiptCheck {
  if (payment === undefined) return pending('inclusion', 'Not on chain yet: no payment covers this entry.')
  if (payment.batch === undefined && !needsTransfer(payment))
    return passed('inclusion', `Payment ${payment.number} ${whyNoTransfer(payment)}, so no transfer is needed.`)
  if (payment.batch === undefined) return pending('inclusion', `Payment ${payment.number} is not on chain yet.`)
  const problem = inclusionProblem(payment, keccak256)
  const { id, root } = payment.batch
  return problem === undefined
    ? passed('inclusion', `Payment ${payment.number} is under the root ${root} of batch ${id}.`)
    : failed('inclusion', problem)
}

/** The problem with the proof from a payment to its batch; undefined when it is valid, or when there is no batch yet. */
export function inclusionProblem({ number, root, batch }: SignedPayment, keccak256: Keccak256): string | undefined {
  if (batch === undefined) return undefined
  const found = batchRootOfProof(root, batch.proof, keccak256)
  if (found === batch.root) return undefined
  return `The proof of payment ${number} leads to the root ${found}, batch ${batch.id} has ${batch.root}.`
}

function passed<Name extends string>(name: Name, detail: string): Check<Name> {
  return { name, ok: true, pending: false, detail }
}

function pending<Name extends string>(name: Name, detail: string): Check<Name> {
  return { name, ok: true, pending: true, detail }
}

function failed<Name extends string>(name: Name, detail: string): Check<Name> {
  return { name, ok: false, pending: false, detail }
}
