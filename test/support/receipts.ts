import { proveReceipt } from '../../gateway/receipt-tree.ts'
import type { BundleHeader, BundleItem } from '../../src/receipts/bundle.ts'
import { createEntryHasher, type Entry } from '../../src/receipts/entry.ts'
import { type Hex, zeroHash } from '../../src/receipts/hex.ts'
import { paymentDigest, type ReceiptPayment, type SignedPayment } from '../../src/receipts/payment.ts'
import { PaymentTree } from '../../src/receipts/payment-tree.ts'
import { issueReceipt, type ReceiptDocument, writeReceipt } from '../../src/receipts/receipt.ts'
import type { ReceiptDomain } from '../../src/receipts/typed-data.ts'
import { keccak256 } from '../../src/signer/keccak.ts'
import { addressOfKey, signDigest } from '../../src/signer/secp256k1.ts'

// The history of an account as a ledger would have it, signed with a key of its own.

export const issuerKey = keccak256('the issuer')
export const issuer: Hex = addressOfKey(issuerKey)
export const payer: Hex = addressOfKey(keccak256('the payer'))
export const domain: ReceiptDomain = { chainId: 5_042_002n, gatewayWallet: `0x${'5e'.repeat(20)}` }

export function entryOf(number: bigint, change: Partial<Entry> = {}): Entry {
  return {
    payer,
    number,
    kind: 'request',
    request: `req_${number.toString(16).padStart(32, '0')}`,
    createdAt: 1_794_000_000_000n + number * 1_000n,
    endedAt: 1_794_000_000_700n + number * 1_000n,
    status: 'succeeded',
    model: 'gpt-5.6-sol',
    prices: '2026-11-01',
    promptTokens: 120n,
    completionTokens: 45n,
    searchCalls: 1n,
    quote: 9_000n,
    fromCredit: 0n,
    amount: 400n + number,
    ...change,
  }
}

const noUsage = {
  status: '',
  model: '',
  prices: '',
  promptTokens: 0n,
  completionTokens: 0n,
  searchCalls: 0n,
  quote: 0n,
}

/** One entry of each kind, numbered from `first` on. */
export function everyKind(first = 1n): readonly Entry[] {
  const charged = entryOf(first)
  return [
    charged,
    entryOf(first + 1n, { fromCredit: 9_000n }),
    entryOf(first + 2n, { status: 'failed', completionTokens: 0n, amount: 0n }),
    entryOf(first + 3n, { fromCredit: -250n, status: 'cancelled' }),
    entryOf(first + 4n, { ...noUsage, kind: 'refund', request: charged.request, amount: -charged.amount }),
    entryOf(first + 5n, { ...noUsage, kind: 'adjustment', request: '', amount: -100n }),
    entryOf(first + 6n, { ...noUsage, kind: 'recovery', request: '', amount: 30n }),
  ]
}

export function hashesOf(entries: readonly Entry[], place: ReceiptDomain = domain): readonly Uint8Array[] {
  return entries.map(createEntryHasher(place, keccak256))
}

export type PaymentChange = { readonly number?: bigint; readonly nonce?: Hex; readonly domain?: ReceiptDomain }

/** The payment of consecutive entries, signed. */
export function pay(entries: readonly Entry[], previous: Hex = zeroHash, change: PaymentChange = {}): SignedPayment {
  const { number = 1n, nonce = `0x${'7a'.repeat(32)}`, domain: place = domain } = change
  const payment: ReceiptPayment = {
    payer: entries[0]!.payer,
    number,
    first: entries[0]!.number,
    last: entries.at(-1)!.number,
    value: entries.reduce((sum, { amount }) => sum + amount, 0n),
    nonce,
    previous,
  }
  const { root } = new PaymentTree(payment, hashesOf(entries, place), keccak256)
  return sign({ ...payment, root }, place)
}

export function sign(payment: ReceiptPayment & { readonly root: Hex }, place: ReceiptDomain = domain): SignedPayment {
  const signature = signDigest(paymentDigest(payment, place, keccak256), issuerKey)
  return { ...payment, signature, issuer }
}

/** The payment in a batch of the gateway, among payments of others. */
export function settleInBatch(payment: SignedPayment, id = 12n): SignedPayment {
  const others = [1, 2, 3, 4].map((digit): Hex => `0x${String(digit).repeat(64)}`)
  const { root, proof } = proveReceipt([...others, payment.root], 4)
  return { ...payment, batch: { id, txHash: `0x${'ab'.repeat(32)}`, root, proof } }
}

/** The document of one of the entries that a payment covers. */
export function documentOf(
  entry: Entry,
  paid?: { readonly payment: SignedPayment; readonly entries: readonly Entry[] },
  place: ReceiptDomain = domain,
): ReceiptDocument {
  if (paid === undefined) return writeReceipt(issueReceipt(entry, place, keccak256))
  const tree = new PaymentTree(paid.payment, hashesOf(paid.entries, place), keccak256)
  return writeReceipt(issueReceipt(entry, place, keccak256, { payment: paid.payment, tree }))
}

export type AccountHistory = {
  readonly header: BundleHeader
  readonly entries: readonly Entry[]
  readonly payments: readonly SignedPayment[]
  readonly items: readonly BundleItem[]
}

/** Payments of these sizes; what is left of the entries is unpaid. Payment numbers have a gap after the first, as after a failure. */
export function historyOf(entries: readonly Entry[], sizes: readonly number[]): AccountHistory {
  const payments: SignedPayment[] = []
  const items: BundleItem[] = []
  let start = 0
  for (const [index, size] of sizes.entries()) {
    const covered = entries.slice(start, start + size)
    const number = BigInt(index === 0 ? 1 : index + 2)
    const nonce: Hex = `0x${number.toString(16).padStart(64, '0')}`
    const payment = settleInBatch(pay(covered, payments.at(-1)?.root, { number, nonce }), number)
    payments.push(payment)
    items.push({ payment }, ...covered.map((entry) => ({ entry })))
    start += size
  }
  items.push(...entries.slice(start).map((entry) => ({ entry })))
  return { header: { domain, payer, issuer }, entries, payments, items }
}
