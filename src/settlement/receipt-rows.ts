import type { AccountRef } from '../db/account-ref.ts'
import { OperatorError } from '../errors.ts'
import { readEntries } from '../ledger/entries.ts'
import { listProvenPayments, readLastEntry } from '../ledger/payments.ts'
import { findLastArchivedPayment } from '../ledger/sealed-months.ts'
import { type BundleHeader, type BundleItem, writeBundle } from '../receipts/bundle.ts'
import { type Hex, toHex } from '../receipts/hex.ts'
import { paymentEntriesMax } from '../receipts/payment.ts'
import { receiptCrypto } from '../signer/receipt-crypto.ts'
import type { ReceiptParts } from './find-receipt.ts'
import { receiptDomain, receiptEntry, signedPaymentOf } from './payment-receipt.ts'

/** The history of one account as of one instant. */
export type ReceiptRows = {
  readonly header: BundleHeader
  /** Can be iterated once. Each payment is followed by its entries; unpaid entries come last. */
  readonly items: AsyncIterable<BundleItem>
}

const paymentsPerPage = 64

/**
 * All receipts of an account up to its current last entry, in the order of a bundle. Undefined for an account without an address, which
 * has no receipts. The bundle begins after the last payment with archived requests. Entries and completed payments never change, so
 * they are read page by page, without a transaction.
 */
export async function openReceiptRows(parts: ReceiptParts, account: AccountRef): Promise<ReceiptRows | undefined> {
  const { entries, address } = await readLastEntry(parts.database, account)
  if (address === undefined) return undefined
  const payer = address as Hex
  const archived = await findLastArchivedPayment(parts.database, account)
  const after = archived && { number: archived.number, last: archived.lastEntry, root: toHex(archived.root) }
  const header = { domain: receiptDomain(parts.terms), payer, issuer: parts.issuer, ...(after && { after }) }
  return { header, items: readItems(parts, { ...account, payer, last: entries, after }) }
}

/** The receipt bundle of an account, in chunks of whole lines. Undefined while the account has no receipts. */
export async function writeReceipts(
  parts: ReceiptParts,
  account: AccountRef,
): Promise<AsyncIterable<string> | undefined> {
  const rows = await openReceiptRows(parts, account)
  return rows && writeBundle(rows.header, rows.items, receiptCrypto.keccak256)
}

type History = AccountRef & {
  readonly payer: Hex
  readonly last: bigint
  readonly after: BundleHeader['after'] | undefined
}

async function* readItems(parts: ReceiptParts, account: History): AsyncGenerator<BundleItem> {
  let covered = account.after?.last ?? 0n
  for await (const { payment, last } of readPayments(parts, account)) {
    yield { payment }
    yield* readRange(parts, account, covered + 1n, last)
    covered = last
  }
  for (let first = covered + 1n; first <= account.last; first += BigInt(paymentEntriesMax)) {
    const end = first + BigInt(paymentEntriesMax) - 1n
    yield* readRange(parts, account, first, end < account.last ? end : account.last)
  }
}

/** Payments with their root. An open payment is the last one: if it fails meanwhile, another payment covers its entries. */
async function* readPayments({ database, issuer }: ReceiptParts, account: History) {
  for (let from = (account.after?.number ?? 0n) + 1n; ; ) {
    const page = await listProvenPayments(database, account, from, paymentsPerPage)
    for (const proven of page) {
      const { payment } = proven
      const isFinal = payment.state === 'completed'
      if (payment.lastEntry > account.last) return
      const signed = signedPaymentOf(proven, issuer)
      if (signed === undefined) {
        if (isFinal) throw new NotRootedError(payment.number)
        return
      }
      yield { payment: signed, last: payment.lastEntry }
      if (!isFinal) return
      from = payment.number + 1n
    }
    if (page.length < paymentsPerPage) return
  }
}

async function* readRange({ database }: ReceiptParts, account: History, firstEntry: bigint, lastEntry: bigint) {
  for (const entry of await readEntries(database, { ...account, firstEntry, lastEntry })) {
    yield { entry: receiptEntry(entry, account.payer) }
  }
}

class NotRootedError extends OperatorError {
  constructor(number: bigint) {
    super(
      `Payment ${number} was recovered from the gateway, and its receipts are not signed yet. The running service signs them: try again in a moment.`,
    )
  }
}
