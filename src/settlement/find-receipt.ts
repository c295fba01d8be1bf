import type { Database } from '../db/database.ts'
import { readEntries } from '../ledger/entries.ts'
import { findCoveringPayment, findEntryOfRequest } from '../ledger/payments.ts'
import type { RequestId } from '../ledger/request-id.ts'
import { checkNotArchived } from '../ledger/sealed-months.ts'
import { toHex } from '../receipts/hex.ts'
import { issueReceipt, type ReceiptDocument, writeReceipt } from '../receipts/receipt.ts'
import type { Address } from '../signer/address.ts'
import { keccak256 } from '../signer/keccak.ts'
import { openTree, type ReceiptTerms, receiptDomain, receiptEntry, receiptPayment } from './payment-receipt.ts'

export type ReceiptParts = {
  readonly database: Database
  readonly terms: ReceiptTerms
  readonly issuer: Address
}

/** Undefined while the request is open. Throws `RequestArchivedError` when its month was archived. */
export async function findReceipt(parts: ReceiptParts, id: RequestId): Promise<ReceiptDocument | undefined> {
  const found = await findEntryOfRequest(parts.database, id)
  if (found !== undefined) return receiptOfEntry(parts, found)
  await checkNotArchived(parts.database, id)
  return undefined
}

/** Identifies an existing entry of an account with an address. */
export type EntryPlace = {
  readonly partition: number
  readonly accountId: string
  readonly address: string
  readonly entry: bigint
}

/**
 * Computes a receipt from rows that never change and the stored signature of the payment, so any node can do it without the signer.
 * Throws when the rows do not hash to the signed root.
 */
export async function receiptOfEntry(
  { database, terms, issuer }: ReceiptParts,
  { address, entry: number, ...account }: EntryPlace,
): Promise<ReceiptDocument> {
  const domain = receiptDomain(terms)
  const covering = await findCoveringPayment(database, account, number)
  if (covering?.payment.root === undefined || covering.signature === undefined) {
    const [row] = await readEntries(database, { ...account, firstEntry: number, lastEntry: number })
    return writeReceipt(issueReceipt(receiptEntry(row!, address), domain, keccak256))
  }
  const { tree, entries } = await openTree(database, covering.payment, terms)
  const payment = {
    ...receiptPayment(covering.payment),
    root: toHex(covering.payment.root),
    signature: toHex(covering.signature),
    issuer,
    batch: covering.batch,
  }
  const entry = entries.find((one) => one.number === number)!
  return writeReceipt(issueReceipt(entry, domain, keccak256, { payment, tree }))
}
