import type { Database } from '../db/database.ts'
import { readEntries } from '../ledger/entries.ts'
import { type EntryPlace, findCoveringPayment, findEntryOfRequest } from '../ledger/payments.ts'
import type { RequestId } from '../ledger/request-id.ts'
import { checkNotArchived } from '../ledger/sealed-months.ts'
import { issueReceipt, type ReceiptDocument, writeReceipt } from '../receipts/receipt.ts'
import type { Address } from '../signer/address.ts'
import { keccak256 } from '../signer/keccak.ts'
import { openTree, type ReceiptTerms, receiptDomain, receiptEntry, signedPaymentOf } from './payment-receipt.ts'

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
  const payment = covering && signedPaymentOf(covering, issuer)
  if (payment === undefined) {
    const [row] = await readEntries(database, { ...account, firstEntry: number, lastEntry: number })
    return writeReceipt(issueReceipt(receiptEntry(row!, address), domain, keccak256))
  }
  const { tree, entries } = await openTree(database, covering!.payment, terms)
  const entry = entries.find((one) => one.number === number)!
  return writeReceipt(issueReceipt(entry, domain, keccak256, { payment, tree }))
}
