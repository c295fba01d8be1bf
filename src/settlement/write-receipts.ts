import type { AccountRef } from '../db/account-ref.ts'
import { writeBundle } from '../receipts/bundle.ts'
import { receiptCrypto } from '../signer/receipt-crypto.ts'
import type { ReceiptParts } from './find-receipt.ts'
import { openReceiptRows } from './receipt-rows.ts'

/** The bundle of an account, in chunks of whole lines; undefined while the account has no receipts. */
export async function writeReceipts(
  parts: ReceiptParts,
  account: AccountRef,
): Promise<AsyncIterable<string> | undefined> {
  const rows = await openReceiptRows(parts, account)
  return rows && writeBundle(rows.header, rows.items, receiptCrypto.keccak256)
}
