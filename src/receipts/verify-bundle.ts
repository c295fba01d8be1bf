import { format } from '../money/usdc.ts'
import { type BundleHeader, type BundleStart, UnpaidEntries } from './bundle.ts'
import type { ReceiptCrypto } from './crypto.ts'
import { createEntryHasher, type Entry, int64Max, int64Min, uint64Max } from './entry.ts'
import { zeroHash } from './hex.ts'
import { type BatchedPayment, needsTransfer, type SignedPayment } from './payment.ts'
import { PaymentRootBuilder } from './payment-tree.ts'
import { type Fields, InvalidReceiptError, readFields, readHex, readInteger } from './read-fields.ts'
import { readLines } from './read-lines.ts'
import { entryNames, paymentNames, readDomain, readEntry, readPayment, receiptVersion } from './receipt.ts'
import { amountProblem, type Check, inclusionProblem, signatureProblem } from './verify-receipt.ts'

const checkNames = ['entries', 'payments', 'amounts', 'signatures', 'inclusion', 'chain', 'unpaid', 'end'] as const
export type BundleCheck = Check<(typeof checkNames)[number]>

export type BundleReport = {
  readonly header: BundleHeader
  readonly totals: BundleTotals
  readonly checks: readonly BundleCheck[]
}

export type BundleTotals = {
  readonly entries: bigint
  readonly unpaid: bigint
  readonly payments: bigint
  /** Payments that name their batch. */
  readonly batched: bigint
  /** Payments that will name their batch once they are on chain. */
  readonly waiting: bigint
  /** The sum of all payments, in atomic USDC. */
  readonly paid: bigint
}

export type BundleOptions = {
  readonly crypto: ReceiptCrypto
  /** Looks for a payment on the chain and returns the problem, if any. Without this function the check `chain` is left out. */
  readonly checkPayment?: (payment: BatchedPayment, header: BundleHeader) => Promise<string | undefined>
  /** Called after each verified part of the file. */
  readonly onProgress?: (totals: BundleTotals) => void
}

/**
 * Recomputes every hash, root, sum and signature of a bundle, offline and in constant memory. Throws an InvalidReceiptError when the
 * file is not a bundle of this version.
 */
export async function verifyBundle(chunks: AsyncIterable<Uint8Array>, options: BundleOptions): Promise<BundleReport> {
  let history: History | undefined
  let lineNumber = 0
  for await (const lines of readLines(chunks)) {
    for (const line of lines) {
      lineNumber += 1
      try {
        const value = parseLine(line)
        if (history === undefined) history = new History(readHeader(value), options)
        else {
          // Only payments have something to wait for, and most lines are entries.
          const work = history.take(value)
          if (work !== undefined) await work
        }
      } catch (error) {
        if (error instanceof InvalidReceiptError) throw new InvalidReceiptError(`line ${lineNumber}: ${error.reason}`)
        throw error
      }
    }
    if (history !== undefined) options.onProgress?.(history.totals)
  }
  if (history === undefined) throw new InvalidReceiptError('the file is empty')
  return history.finish()
}

function parseLine(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    throw new InvalidReceiptError('it is not JSON; the file may be cut off')
  }
}

export function readHeader(value: unknown): BundleHeader {
  const fields = readFields(value, 'the header', ['object', 'version', 'domain', 'payer', 'issuer'], ['after'])
  if (fields.object !== 'receipts') throw new InvalidReceiptError('"object" of the header is not "receipts"')
  if (fields.version !== receiptVersion) {
    throw new InvalidReceiptError(`the header has another version; this program verifies version ${receiptVersion}`)
  }
  const [payer, issuer] = [readHex(fields, 'payer', 20), readHex(fields, 'issuer', 20)]
  const domain = readDomain(fields.domain)
  return Object.hasOwn(fields, 'after')
    ? { domain, payer, issuer, after: readStart(fields.after) }
    : { domain, payer, issuer }
}

function readStart(value: unknown): BundleStart {
  const fields = readFields(value, '"after"', ['payment', 'entry', 'root'])
  return {
    number: readInteger(fields, 'payment', 1n, uint64Max),
    last: readInteger(fields, 'entry', 1n, uint64Max),
    root: readHex(fields, 'root', 32),
  }
}

/** The history of the account as far as it was read. */
class History {
  readonly #header: BundleHeader
  readonly #options: BundleOptions
  readonly #hashEntry: (entry: Entry) => Uint8Array
  readonly #findings = new Findings()
  readonly #unpaid: UnpaidEntries
  /** The payment whose entries are being read. */
  #open: OpenPayment | undefined
  #lastPayment: BundleStart | undefined
  #nextEntry: bigint
  #skipped = 0n
  #totals = { entries: 0n, payments: 0n, batched: 0n, waiting: 0n, paid: 0n }
  #hasEnded = false

  constructor(header: BundleHeader, options: BundleOptions) {
    this.#header = header
    this.#options = options
    this.#hashEntry = createEntryHasher(header.domain, options.crypto.keccak256)
    this.#unpaid = new UnpaidEntries(options.crypto.keccak256)
    this.#lastPayment = header.after
    this.#nextEntry = (header.after?.last ?? 0n) + 1n
    if (header.after !== undefined) this.#unpaid.follow(header.after)
  }

  get totals(): BundleTotals {
    return { ...this.#totals, unpaid: BigInt(this.#unpaid.count) }
  }

  /** One line after the header. */
  take(value: unknown): Promise<void> | undefined {
    if (this.#hasEnded) throw new InvalidReceiptError('it comes after the end')
    const object = typeof value === 'object' && value !== null ? (value as Fields).object : undefined
    const { payer, issuer } = this.#header
    switch (object) {
      case 'entry':
        this.#takeEntry(readEntry(readFields(value, 'the entry', ['object', ...entryNames]), payer))
        return undefined
      case 'payment': {
        const fields = readFields(value, 'the payment', ['object', ...paymentNames], ['batch'])
        return this.#takePayment(readPayment(fields, payer, issuer))
      }
      case 'end':
        this.#takeEnd(readFields(value, 'the end', ['object', 'payments', 'entries'], ['unpaid']))
        return undefined
      default:
        throw new InvalidReceiptError('it is neither a payment nor an entry nor the end')
    }
  }

  #takeEntry(entry: Entry): void {
    if (entry.number !== this.#nextEntry) {
      this.#findings.add('entries', `Entry ${entry.number} is where entry ${this.#nextEntry} belongs.`)
    }
    this.#nextEntry = entry.number + 1n
    this.#totals.entries += 1n
    const problem = amountProblem(entry)
    if (problem !== undefined) this.#findings.add('amounts', problem)
    const hash = this.#hashEntry(entry)
    if (this.#unpaid.isUnpaid(entry)) {
      this.#close()
      this.#unpaid.add(entry, hash)
    } else if (this.#open === undefined) {
      this.#findings.add('entries', `Entry ${entry.number} is outside its payment.`)
    } else {
      this.#open.builder.add(hash)
      this.#open.sum += entry.amount
    }
  }

  async #takePayment(payment: SignedPayment): Promise<void> {
    this.#close()
    const before = this.#lastPayment
    const { number, first, previous } = payment
    if (this.#unpaid.count > 0) this.#findings.add('payments', `Payment ${number} comes after unpaid entries.`)
    if (previous !== (before?.root ?? zeroHash)) {
      const place =
        before === undefined ? 'is not the first of the account' : `does not continue payment ${before.number}`
      this.#findings.add('payments', `Payment ${number} ${place}: a payment is missing or out of order.`)
    }
    const expected = (before?.last ?? 0n) + 1n
    if (first !== expected) {
      this.#findings.add('payments', `Payment ${number} begins at entry ${first} instead of ${expected}.`)
    }
    if (before !== undefined && number <= before.number) {
      this.#findings.add('payments', `Payment ${number} comes after payment ${before.number}.`)
    } else if (before !== undefined) this.#skipped += number - before.number - 1n
    this.#nextEntry = first
    this.#lastPayment = payment
    this.#open = { payment, builder: new PaymentRootBuilder(this.#options.crypto.keccak256), sum: 0n }
    this.#unpaid.follow(payment)
    this.#totals.payments += 1n
    this.#totals.paid += payment.value
    await this.#checkProofs(payment)
  }

  async #checkProofs(payment: SignedPayment): Promise<void> {
    const { crypto, checkPayment } = this.#options
    const signature = await signatureProblem(payment, this.#header.domain, crypto)
    if (signature !== undefined) this.#findings.add('signatures', signature)
    const { batch } = payment
    if (batch === undefined) {
      if (needsTransfer(payment)) this.#totals.waiting += 1n
      return
    }
    this.#totals.batched += 1n
    const inclusion = inclusionProblem(payment, crypto.keccak256)
    if (inclusion !== undefined) this.#findings.add('inclusion', inclusion)
    const chain = await checkPayment?.({ ...payment, batch }, this.#header)
    if (chain !== undefined) this.#findings.add('chain', chain)
  }

  /** Compares a payment with the sum of its entries. */
  #close(): void {
    if (this.#open === undefined) return
    const { payment, builder, sum } = this.#open
    const { number, first, last, value, root } = payment
    this.#open = undefined
    const count = last - first + 1n
    if (BigInt(builder.count) !== count) {
      const text = `Payment ${number} covers ${count} entries (${first} to ${last}); ${builder.count} of them are in the file.`
      this.#findings.add('entries', text)
      return
    }
    const found = builder.root(payment)
    if (found !== root) {
      this.#findings.add('payments', `The entries of payment ${number} have the root ${found}, it says ${root}.`)
    }
    if (sum !== value) {
      const text = `The entries of payment ${number} add up to ${format(sum)} USDC, it says ${format(value)} USDC.`
      this.#findings.add('amounts', text)
    }
  }

  #takeEnd(fields: Fields): void {
    this.#close()
    this.#hasEnded = true
    const { payments, entries } = this.#totals
    const said = {
      payments: readInteger(fields, 'payments', 0n, uint64Max),
      entries: readInteger(fields, 'entries', 0n, uint64Max),
    }
    if (said.payments !== payments || said.entries !== entries) {
      const text = `The file has ${payments} payments and ${entries} entries, its last line says ${said.payments} and ${said.entries}.`
      this.#findings.add('end', text)
    }
    // With gaps there is no range to compare; the gap itself is already reported.
    if (this.#findings.has('entries') || this.#findings.has('payments')) return
    const unpaid = this.#unpaid.summary()
    const names = ['first', 'last', 'value_atomic', 'root']
    const claim = Object.hasOwn(fields, 'unpaid') ? readFields(fields.unpaid, '"unpaid"', names) : undefined
    const isSame =
      claim === undefined || unpaid === undefined
        ? claim === unpaid
        : readInteger(claim, 'first', 1n, uint64Max) === unpaid.first &&
          readInteger(claim, 'last', 1n, uint64Max) === unpaid.last &&
          readInteger(claim, 'value_atomic', int64Min, int64Max) === unpaid.value &&
          readHex(claim, 'root', 32) === unpaid.root
    if (!isSame) this.#findings.add('unpaid', 'The unpaid entries are not those that the last line describes.')
  }

  finish(): BundleReport {
    this.#close()
    if (!this.#hasEnded) this.#findings.add('end', 'The last line is missing: the file is cut off.')
    const checks = checkNames
      .filter((name) => name !== 'chain' || this.#options.checkPayment !== undefined)
      .map((name) => this.#findings.check(name, this.#describe(name)))
    return { header: this.#header, totals: this.totals, checks }
  }

  #describeEntries(): string {
    const { entries } = this.#totals
    const { after } = this.#header
    const first = (after?.last ?? 0n) + 1n
    const here = entries === 0n ? 'No entries yet.' : `Entries ${first} to ${first + entries - 1n} are all here.`
    if (after === undefined) return here
    return `${here} Those up to ${after.last} are archived: an earlier export that ends with payment ${after.number} (root ${after.root}) has them.`
  }

  /** The text of a check without findings, and whether something is still pending. */
  #describe(name: BundleCheck['name']): readonly [detail: string, pending: boolean] {
    const { entries, payments, batched, waiting, paid, unpaid } = this.totals
    const isWaiting = waiting > 0n || payments === 0n
    const free = payments - batched - waiting
    const others = [
      ...(waiting === 0n ? [] : [` ${waiting} not on chain yet.`]),
      ...(free === 0n ? [] : [` ${free} add up to zero and need no transfer.`]),
    ].join('')
    const none = 'No payment yet.'
    switch (name) {
      case 'entries':
        return [this.#describeEntries(), entries === 0n]
      case 'payments': {
        const skipped =
          this.#skipped === 0n ? '' : ` Unused payment numbers: ${this.#skipped} (failed payments keep theirs).`
        return [
          payments === 0n ? none : `${payments} payments, each continuing the one before.${skipped}`,
          payments === 0n,
        ]
      }
      case 'amounts':
        return [`All amounts add up. Paid: ${format(paid)} USDC.`, false]
      case 'signatures':
        return [payments === 0n ? none : `All payments are signed by ${this.#header.issuer}.`, payments === 0n]
      case 'inclusion':
        return [
          payments === 0n ? none : `${batched} payments are under the roots of their batches.${others}`,
          isWaiting,
        ]
      case 'chain':
        return [payments === 0n ? none : `${batched} payments are on chain.${others}`, isWaiting]
      case 'unpaid':
        return [
          unpaid === 0n
            ? 'Every entry is paid.'
            : `${unpaid} entries at the end are not paid yet, so they are not signed.`,
          unpaid > 0n,
        ]
      case 'end':
        return ['The file is complete.', false]
    }
  }
}

type OpenPayment = { readonly payment: SignedPayment; readonly builder: PaymentRootBuilder; sum: bigint }

/** Findings by check: the first one in full, and their number. */
class Findings {
  readonly #found = new Map<string, { readonly text: string; count: number }>()

  add(name: BundleCheck['name'], text: string): void {
    const found = this.#found.get(name)
    if (found === undefined) this.#found.set(name, { text, count: 1 })
    else found.count += 1
  }

  has(name: BundleCheck['name']): boolean {
    return this.#found.has(name)
  }

  check(name: BundleCheck['name'], [detail, pending]: readonly [string, boolean]): BundleCheck {
    const found = this.#found.get(name)
    if (found === undefined) return { name, ok: true, pending, detail }
    const more = found.count === 1 ? '' : ` And ${found.count - 1} more.`
    return { name, ok: false, pending: false, detail: `${found.text}${more}` }
  }
}
