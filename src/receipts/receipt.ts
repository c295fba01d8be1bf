import type { Keccak256 } from './crypto.ts'
import {
  createEntryHasher,
  type Entry,
  type EntryKind,
  entryKinds,
  int64Max,
  int64Min,
  integerFields,
  textBytesMax,
  textFields,
  uint64Max,
} from './entry.ts'
import { type Hex, toHex } from './hex.ts'
import { type Batch, paymentEntriesMax, type ReceiptPayment, type SignedPayment } from './payment.ts'
import type { PaymentTree } from './payment-tree.ts'
import {
  type Fields,
  InvalidReceiptError,
  readFields,
  readHashes,
  readHex,
  readInteger,
  readText,
} from './read-fields.ts'
import type { ReceiptDomain } from './typed-data.ts'

export const receiptVersion = 2

/** An entry with its proof. */
export type Receipt = {
  readonly entry: Entry
  readonly domain: ReceiptDomain
  readonly hash: Hex
  /** Absent while no payment covers the entry. */
  readonly payment?: CoveringPayment | undefined
}

/** `proof`: the siblings from the entry's hash to the root. */
export type CoveringPayment = SignedPayment & { readonly proof: readonly Hex[] }

/** A receipt as JSON; numbers are text. */
export type ReceiptDocument = {
  readonly object: 'receipt'
  readonly version: 2
  readonly entry: EntryDocument & { readonly payer: Hex }
  readonly domain: DomainDocument
  readonly hash: Hex
  readonly payment?: PaymentDocument & { readonly payer: Hex; readonly issuer: Hex; readonly proof: Hex[] }
}

type IntegerLabel = (typeof integerFields)[number]['label']
type TextName = (typeof textFields)[number]

/** An entry without its payer, which a bundle names once. */
export type EntryDocument = { readonly kind: EntryKind } & Readonly<Record<IntegerLabel | TextName, string>>

export type DomainDocument = { readonly chain_id: string; readonly gateway_wallet: Hex }

/** A payment without payer and issuer, which a bundle names once. */
export type PaymentDocument = {
  readonly number: string
  readonly first: string
  readonly last: string
  readonly value_atomic: string
  readonly nonce: Hex
  readonly previous: Hex
  readonly root: Hex
  readonly signature: Hex
  readonly batch?: BatchDocument
}

export type BatchDocument = {
  readonly id: string
  readonly tx_hash: Hex
  readonly root: Hex
  readonly proof: Hex[]
}

/**
 * The receipt of an entry, and with `paid` its proof under the payment that covers it. Throws when the tree does not have the
 * payment's root: then the stored entries are not those that were signed.
 */
export function issueReceipt(
  entry: Entry,
  domain: ReceiptDomain,
  keccak256: Keccak256,
  paid?: { readonly payment: SignedPayment; readonly tree: PaymentTree },
): Receipt {
  const hash = toHex(createEntryHasher(domain, keccak256)(entry))
  if (paid === undefined) return { entry, domain, hash }
  const { payment, tree } = paid
  if (tree.root !== payment.root) {
    throw new Error(
      `Payment ${payment.number} of ${payment.payer} has the root ${payment.root}; its entries give ${tree.root}.`,
    )
  }
  return { entry, domain, hash, payment: { ...payment, proof: tree.prove(entry.number) } }
}

export function writeReceipt({ entry, domain, hash, payment }: Receipt): ReceiptDocument {
  return {
    object: 'receipt',
    version: receiptVersion,
    entry: { payer: entry.payer, ...writeEntry(entry) },
    domain: writeDomain(domain),
    hash,
    ...(payment === undefined
      ? {}
      : {
          payment: {
            payer: payment.payer,
            ...writePayment(payment),
            issuer: payment.issuer,
            proof: [...payment.proof],
          },
        }),
  }
}

/** Parses an untrusted document. Throws an InvalidReceiptError when it is not a receipt of this version. Verifies nothing. */
export function readReceipt(value: unknown): Receipt {
  refuseOtherVersions(value)
  const names = ['object', 'version', 'entry', 'domain', 'hash']
  // The API adds the request's id.
  const fields = readFields(value, 'the receipt', names, ['payment', 'id'])
  if (fields.object !== 'receipt') throw new InvalidReceiptError('"object" is not "receipt"')
  const entryFields = readFields(fields.entry, '"entry"', ['payer', ...entryNames])
  const entry = readEntry(entryFields, readHex(entryFields, 'payer', 20))
  if (fields.id !== undefined && fields.id !== entry.request) {
    throw new InvalidReceiptError('"id" is not the request of the entry')
  }
  const receipt = { entry, domain: readDomain(fields.domain), hash: readHex(fields, 'hash', 32) }
  return Object.hasOwn(fields, 'payment') ? { ...receipt, payment: readReceiptPayment(fields.payment) } : receipt
}

function refuseOtherVersions(value: unknown): void {
  const version =
    typeof value === 'object' && value !== null && Object.hasOwn(value, 'version') && (value as Fields).version
  if (version === receiptVersion) return
  const found = typeof version === 'number' ? `version ${version}` : 'no version'
  throw new InvalidReceiptError(`it has ${found}; this program verifies version ${receiptVersion}`)
}

function readReceiptPayment(value: unknown): CoveringPayment {
  const fields = readFields(value, '"payment"', ['payer', 'issuer', 'proof', ...paymentNames], ['batch'])
  const payer = readHex(fields, 'payer', 20)
  const issuer = readHex(fields, 'issuer', 20)
  return { ...readPayment(fields, payer, issuer), proof: readHashes(fields, 'proof', proofLengthMax) }
}

/** One hash for each level of the tree. A batch will never have 2^32 payments. */
const proofLengthMax = Math.ceil(Math.log2(paymentEntriesMax))
const batchProofLengthMax = 32
const chainIdMax = 2n ** 53n - 1n

export const entryNames: readonly string[] = ['kind', ...textFields, ...integerFields.map(({ label }) => label)]

export function writeEntry(entry: Entry): EntryDocument {
  const { kind, request, status, model, prices } = entry
  const integers = integerFields.map(({ name, label }) => [label, entry[name].toString()])
  return { kind, request, status, model, prices, ...(Object.fromEntries(integers) as Record<IntegerLabel, string>) }
}

export function readEntry(fields: Fields, payer: Hex): Entry {
  const kind = entryKinds.find((known) => known === fields.kind)
  if (kind === undefined) throw new InvalidReceiptError(`"kind" is not one of ${entryKinds.join(', ')}`)
  const texts = textFields.map((name) => [name, readText(fields, name, textBytesMax)])
  const integers = integerFields.map(({ name, label, min, max }) => [name, readInteger(fields, label, min, max)])
  return { payer, kind, ...Object.fromEntries([...texts, ...integers]) } as Entry
}

export function writeDomain({ chainId, gatewayWallet }: ReceiptDomain): DomainDocument {
  return { chain_id: chainId.toString(), gateway_wallet: gatewayWallet }
}

export function readDomain(value: unknown): ReceiptDomain {
  const fields = readFields(value, '"domain"', ['chain_id', 'gateway_wallet'])
  return {
    chainId: readInteger(fields, 'chain_id', 1n, chainIdMax),
    gatewayWallet: readHex(fields, 'gateway_wallet', 20),
  }
}

export const paymentNames: readonly string[] = [
  'number',
  'first',
  'last',
  'value_atomic',
  'nonce',
  'previous',
  'root',
  'signature',
]

export function writePayment(payment: Omit<SignedPayment, 'payer' | 'issuer'>): PaymentDocument {
  const { number, first, last, value, nonce, previous, root, signature, batch } = payment
  return {
    number: number.toString(),
    first: first.toString(),
    last: last.toString(),
    value_atomic: value.toString(),
    nonce,
    previous,
    root,
    signature,
    ...(batch === undefined ? {} : { batch: writeBatch(batch) }),
  }
}

export function readPayment(fields: Fields, payer: Hex, issuer: Hex): SignedPayment {
  const payment: ReceiptPayment = {
    payer,
    number: readInteger(fields, 'number', 0n, uint64Max),
    first: readInteger(fields, 'first', 1n, uint64Max),
    last: readInteger(fields, 'last', 1n, uint64Max),
    value: readInteger(fields, 'value_atomic', int64Min, int64Max),
    nonce: readHex(fields, 'nonce', 32),
    previous: readHex(fields, 'previous', 32),
  }
  const count = payment.last - payment.first + 1n
  if (count < 1n || count > paymentEntriesMax) {
    throw new InvalidReceiptError(`a payment covers 1 to ${paymentEntriesMax} entries, this one ${count}`)
  }
  const signed = { ...payment, root: readHex(fields, 'root', 32), signature: readHex(fields, 'signature', 65), issuer }
  return Object.hasOwn(fields, 'batch') ? { ...signed, batch: readBatch(fields.batch) } : signed
}

function writeBatch({ id, txHash, root, proof }: Batch): BatchDocument {
  return { id: id.toString(), tx_hash: txHash, root, proof: [...proof] }
}

function readBatch(value: unknown): Batch {
  const fields = readFields(value, '"batch"', ['id', 'tx_hash', 'root', 'proof'])
  return {
    id: readInteger(fields, 'id', 0n, uint64Max),
    txHash: readHex(fields, 'tx_hash', 32),
    root: readHex(fields, 'root', 32),
    proof: readHashes(fields, 'proof', batchProofLengthMax),
  }
}
