import type { Database } from '../db/database.ts'
import { type LedgerEntry, readEntries, readKeptEntries, readKeptEntriesOf, requireWhole } from '../ledger/entries.ts'
import { listProvenPayments, type Payment, type ProvenPayment } from '../ledger/payments.ts'
import { formatRequestId } from '../ledger/request-id.ts'
import type { PaymentKey } from '../ledger/seal-month.ts'
import { readLeaves } from '../ledger/sealed-months.ts'
import { createEntryHasher, type Entry } from '../receipts/entry.ts'
import { type Hex, toHex, zeroHash } from '../receipts/hex.ts'
import type { SignedPayment } from '../receipts/payment.ts'
import { paymentStructHash, type ReceiptPayment } from '../receipts/payment.ts'
import { PaymentRootBuilder, PaymentTree } from '../receipts/payment-tree.ts'
import type { ReceiptDomain } from '../receipts/typed-data.ts'
import type { Address } from '../signer/address.ts'
import { keccak256 } from '../signer/keccak.ts'
import { nonceOf } from '../signer/nonce.ts'
import type { SigningTerms } from '../signer/signing-terms.ts'

export function receiptEntry(entry: LedgerEntry, payer: string): Entry {
  return {
    payer: payer as Hex,
    number: entry.number,
    kind: entry.kind,
    request: entry.requestId === undefined ? '' : formatRequestId(entry.requestId),
    createdAt: BigInt(entry.createdAt.getTime()),
    endedAt: BigInt(entry.endedAt.getTime()),
    status: entry.status,
    model: entry.model,
    prices: entry.priceVersion,
    promptTokens: BigInt(entry.promptTokens),
    completionTokens: BigInt(entry.completionTokens),
    searchCalls: BigInt(entry.searchCalls),
    quote: entry.quote,
    fromCredit: entry.fromCredit,
    amount: entry.amount,
  }
}

/** What receipts depend on besides their entries: two services on one chain must not write the same receipt. */
export type ReceiptTerms = Pick<SigningTerms, 'chainId' | 'gatewayWallet'>

export function receiptDomain({ chainId, gatewayWallet }: ReceiptTerms): ReceiptDomain {
  return { chainId: BigInt(chainId), gatewayWallet }
}

export function receiptPayment(payment: Payment): ReceiptPayment {
  return {
    payer: payment.address as Hex,
    number: payment.number,
    first: payment.firstEntry,
    last: payment.lastEntry,
    value: payment.value,
    nonce: payment.isPrepaid ? zeroHash : paymentNonce(payment),
    previous: payment.previousRoot ?? zeroHash,
  }
}

/** A payment as its receipts show it; undefined until it is signed. */
export function signedPaymentOf(
  { payment, signature, batch }: ProvenPayment,
  issuer: Address,
): SignedPayment | undefined {
  const { root } = payment
  if (root === undefined || signature === undefined) return undefined
  return { ...receiptPayment(payment), root, signature, issuer, batch }
}

/** Payments from the seller to the account have a nonce space of their own. */
export function paymentNonce({ accountId, epoch, number, value }: PaymentNumber): Hex {
  return nonceOf(value < 0n ? 'return' : 'authorization', accountId, epoch, number)
}

type PaymentNumber = Pick<Payment, 'accountId' | 'epoch' | 'number' | 'value'>

/** The Merkle root over a payment's entries, and the hash that the issuer signs. Deterministic: entries never change. */
export type PaymentRoot = { readonly root: Hex; readonly structHash: Hex }

/** Entries per statement, except that a single payment may have more. */
const entriesPerStatement = 16_384n

/**
 * The roots of new payments, in order; an Error for one whose entries are missing or do not add up to its value. One statement reads
 * the entries of many payments.
 */
export async function computeRoots(
  database: Database,
  payments: readonly Payment[],
  terms: ReceiptTerms,
): Promise<ReadonlyMap<Payment, PaymentRoot | Error>> {
  const hashEntry = createEntryHasher(receiptDomain(terms), keccak256)
  const roots = new Map<Payment, PaymentRoot | Error>()
  for (const [partition, group] of Map.groupBy(payments, (payment) => payment.partition)) {
    for (const some of inPortions(group)) {
      const found = await readKeptEntriesOf(database, partition, some)
      for (const [index, payment] of some.entries()) roots.set(payment, tryRoot(payment, found[index]!, hashEntry))
    }
  }
  return roots
}

function* inPortions(payments: readonly Payment[]): Generator<readonly Payment[]> {
  let [portion, entries]: [Payment[], bigint] = [[], 0n]
  for (const payment of payments) {
    const count = payment.lastEntry - payment.firstEntry + 1n
    if (portion.length > 0 && entries + count > entriesPerStatement) {
      yield portion
      portion = []
      entries = 0n
    }
    portion.push(payment)
    entries += count
  }
  if (portion.length > 0) yield portion
}

function tryRoot(payment: Payment, entries: readonly LedgerEntry[], hashEntry: EntryHasher): PaymentRoot | Error {
  try {
    requireWhole(payment, entries)
    const value = entries.reduce((sum, { amount }) => sum + amount, 0n)
    if (value !== payment.value) throw new Error(`its entries add up to ${value}, but its value is ${payment.value}`)
    return rootOver(payment, entries, hashEntry)
  } catch (error) {
    return error as Error
  }
}

type EntryHasher = ReturnType<typeof createEntryHasher>

function rootOver(payment: Payment, entries: readonly LedgerEntry[], hashEntry: EntryHasher): PaymentRoot {
  const builder = new PaymentRootBuilder(keccak256)
  for (const entry of entries) builder.add(hashEntry(receiptEntry(entry, payment.address)))
  const described = receiptPayment(payment)
  const root = builder.root(described)
  const structHash = paymentStructHash({ ...described, root }, keccak256)
  return { root, structHash: toHex(structHash) }
}

/** The tree that proves the entries of a payment, and those entries that are not archived. */
export async function openTree(
  database: Database,
  payment: Payment,
  terms: ReceiptTerms,
): Promise<{ readonly tree: PaymentTree; readonly entries: readonly Entry[] }> {
  const hashEntry = createEntryHasher(receiptDomain(terms), keccak256)
  const entries = (await readKeptEntries(database, payment)).map((entry) => receiptEntry(entry, payment.address))
  const isWhole = BigInt(entries.length) === payment.lastEntry - payment.firstEntry + 1n
  const hashes = isWhole ? entries.map(hashEntry) : await readLeaves(database, payment)
  return { tree: new PaymentTree(receiptPayment(payment), hashes, keccak256), entries }
}

/** The concatenated hashes of a payment's entries. Throws when they do not match the signed root. */
export async function hashEntries(database: Database, key: PaymentKey, terms: ReceiptTerms): Promise<Buffer> {
  const [found] = await listProvenPayments(database, key, key.number, 1)
  const { payment } = found!
  const hashEntry = createEntryHasher(receiptDomain(terms), keccak256)
  const entries = await readEntries(database, payment)
  const hashes = entries.map((entry) => hashEntry(receiptEntry(entry, payment.address)))
  const { root } = new PaymentTree(receiptPayment(payment), hashes, keccak256)
  if (root !== payment.root) {
    throw new Error(`The entries of payment ${payment.number} of account ${payment.accountId} do not match its root.`)
  }
  return Buffer.concat(hashes)
}
