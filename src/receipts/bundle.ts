import type { Keccak256 } from './crypto.ts'
import { createEntryHasher, type Entry } from './entry.ts'
import { type Hex, zeroHash } from './hex.ts'
import type { SignedPayment } from './payment.ts'
import { PaymentRootBuilder } from './payment-tree.ts'
import { receiptVersion, writeDomain, writeEntry, writePayment } from './receipt.ts'
import type { ReceiptDomain } from './typed-data.ts'

// A bundle is the whole history of one account as JSON lines, so that it can be written and verified in constant memory:
//
//   {"object":"receipts","version":2,"domain":{…},"payer":"0x…","issuer":"0x…"}
//   {"object":"payment",…}                   in the order of their entries
//   {"object":"entry",…}                     the entries of that payment, in order; then the next payment
//   {"object":"entry",…}                     after the last payment: entries that no payment covers yet
//   {"object":"end","payments":"2","entries":"9","unpaid":{…}}
//
// Where requests were archived the header has `"after":{"payment":"7","entry":"1234","root":"0x…"}`: the bundle begins behind that
// payment. An earlier bundle of the account, or the archive, has what came before; the next payment is chained to `root`.
//
// The last line tells a file that was cut off from a whole one. `unpaid` is present when entries are unpaid: their range, their sum,
// and the root that a payment of them would have.

export type BundleHeader = {
  readonly domain: ReceiptDomain
  readonly payer: Hex
  readonly issuer: Hex
  /** The payment before the first one, where the bundle does not begin with the first. */
  readonly after?: BundleStart
}

export type BundleStart = Pick<SignedPayment, 'number' | 'last' | 'root'>

/** Each payment is followed by its entries; entries that no payment covers come last. */
export type BundleItem = { readonly payment: SignedPayment } | { readonly entry: Entry }

const linesPerChunk = 256

/** The text of a bundle, in chunks of whole lines. */
export async function* writeBundle(
  header: BundleHeader,
  items: AsyncIterable<BundleItem> | Iterable<BundleItem>,
  keccak256: Keccak256,
): AsyncGenerator<string> {
  const { domain, payer, issuer, after } = header
  const hashEntry = createEntryHasher(domain, keccak256)
  const unpaid = new UnpaidEntries(keccak256)
  if (after !== undefined) unpaid.follow(after)
  let [payments, entries] = [0n, 0n]
  let lines = [
    JSON.stringify({
      object: 'receipts',
      version: receiptVersion,
      domain: writeDomain(domain),
      payer,
      issuer,
      ...(after && {
        after: { payment: after.number.toString(), entry: after.last.toString(), root: after.root },
      }),
    }),
  ]
  for await (const item of items) {
    if ('payment' in item) {
      payments += 1n
      unpaid.follow(item.payment)
      lines.push(JSON.stringify({ object: 'payment', ...writePayment(item.payment) }))
    } else {
      entries += 1n
      if (unpaid.isUnpaid(item.entry)) unpaid.add(item.entry, hashEntry(item.entry))
      lines.push(JSON.stringify({ object: 'entry', ...writeEntry(item.entry) }))
    }
    if (lines.length < linesPerChunk) continue
    yield `${lines.join('\n')}\n`
    lines = []
  }
  const counts = { payments: payments.toString(), entries: entries.toString() }
  lines.push(JSON.stringify({ object: 'end', ...counts, ...writeUnpaid(unpaid.summary()) }))
  yield `${lines.join('\n')}\n`
}

/** The unpaid entries, as the last line states them. `root` is the root that a payment of them would have. */
export type UnpaidSummary = Pick<SignedPayment, 'first' | 'last' | 'value' | 'root'>

/** Collects the entries after the last payment. */
export class UnpaidEntries {
  readonly #builder: PaymentRootBuilder
  #previous = zeroHash
  #paidTo = 0n
  #first = 0n
  #last = 0n
  #value = 0n

  constructor(keccak256: Keccak256) {
    this.#builder = new PaymentRootBuilder(keccak256)
  }

  get count(): number {
    return this.#builder.count
  }

  follow({ root, last }: Pick<SignedPayment, 'root' | 'last'>): void {
    this.#previous = root
    this.#paidTo = last
  }

  isUnpaid({ number }: Entry): boolean {
    return number > this.#paidTo
  }

  add({ number, amount }: Entry, hash: Uint8Array): void {
    if (this.count === 0) this.#first = number
    this.#last = number
    this.#value += amount
    this.#builder.add(hash)
  }

  /** Undefined when there are none. Throws a RangeError when an entry between the first and the last is missing. */
  summary(): UnpaidSummary | undefined {
    if (this.count === 0) return undefined
    const range = { previous: this.#previous, first: this.#first, last: this.#last }
    return { first: range.first, last: range.last, value: this.#value, root: this.#builder.root(range) }
  }
}

function writeUnpaid(summary: UnpaidSummary | undefined): object {
  if (summary === undefined) return {}
  const { first, last, value, root } = summary
  return {
    unpaid: { first: first.toString(), last: last.toString(), value_atomic: value.toString(), root },
  }
}
