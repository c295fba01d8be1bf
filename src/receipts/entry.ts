import type { Keccak256 } from './crypto.ts'
import { type Hex, writeHex } from './hex.ts'
import { domainSeparator, type ReceiptDomain } from './typed-data.ts'

/** One line of an account's history: an ended request, or a correction. It never changes. */
export type Entry = {
  /** The account's address. */
  readonly payer: Hex
  /** Counts the entries of the account: 1, 2, 3 … */
  readonly number: bigint
  readonly kind: EntryKind
  /** `req_…`; empty for an adjustment that names no request. */
  readonly request: string
  /** Milliseconds since 1970. */
  readonly createdAt: bigint
  readonly endedAt: bigint
  readonly status: string
  readonly model: string
  /** The version of the price list. */
  readonly prices: string
  readonly promptTokens: bigint
  readonly completionTokens: bigint
  readonly searchCalls: bigint
  /** Amounts are in atomic USDC. */
  readonly quote: bigint
  /** Negative when the request took over a debt. */
  readonly fromCredit: bigint
  /** The charge; negative for a refund. */
  readonly amount: bigint
}

export const entryKinds = ['request', 'adjustment', 'refund', 'recovery'] as const
export type EntryKind = (typeof entryKinds)[number]

// The encoding, version 2. Two different entries never have the same bytes: integers have a fixed width, texts carry their length.
//
//   bytes  field
//       1  version: 0x02
//       1  kind: 1 request, 2 adjustment, 3 refund, 4 recovery
//      20  payer
//       8  number                unsigned, as all integers big-endian
//       8  createdAt             unsigned
//       8  endedAt               unsigned
//       8  promptTokens          unsigned
//       8  completionTokens      unsigned
//       8  searchCalls           unsigned
//       8  quote                 unsigned
//       8  fromCredit            signed, two's complement
//       8  amount                signed, two's complement
//     2+n  request               length in bytes (unsigned), then UTF-8
//     2+n  status
//     2+n  model
//     2+n  prices
//
// The hash of an entry is keccak256(0x00 ‖ domain separator ‖ encoding). The domain separator is the EIP-712 one of the payment's
// signature. First bytes keep the hashes apart: 0x00 an entry, 0x01 a node of the tree, 0x02 its root, 0x03 and 0x04
// a leaf and a node of the liabilities, 0x19 a signed message.

const encodingVersion = 2
const entryTag = 0x00
const separatorBytes = 32
const payerBytes = 20
export const textBytesMax = 1_024

export const uint64Max = 2n ** 64n - 1n
export const int64Max = 2n ** 63n - 1n
export const int64Min = -(2n ** 63n)
/** The last instant of JavaScript's `Date`. */
export const instantMax = 8_640_000_000_000_000n

/** In the order of the encoding, with the names that documents use. */
export const integerFields = [
  { name: 'number', label: 'number', min: 1n, max: uint64Max },
  { name: 'createdAt', label: 'created_at_ms', min: 0n, max: instantMax },
  { name: 'endedAt', label: 'ended_at_ms', min: 0n, max: instantMax },
  { name: 'promptTokens', label: 'prompt_tokens', min: 0n, max: uint64Max },
  { name: 'completionTokens', label: 'completion_tokens', min: 0n, max: uint64Max },
  { name: 'searchCalls', label: 'search_calls', min: 0n, max: uint64Max },
  { name: 'quote', label: 'quote_atomic', min: 0n, max: uint64Max },
  { name: 'fromCredit', label: 'from_credit_atomic', min: int64Min, max: int64Max },
  { name: 'amount', label: 'amount_atomic', min: int64Min, max: int64Max },
] as const

export const textFields = ['request', 'status', 'model', 'prices'] as const

const integerBytes = 8
const lengthBytes = 2
const headBytes = 2 + payerBytes + integerFields.length * integerBytes
const prefixBytes = 1 + separatorBytes
const entryBytesMax = headBytes + textFields.length * (lengthBytes + textBytesMax)

/** Hashes entries of one domain. Reuse the function: it owns the buffer that it encodes into. */
export function createEntryHasher(domain: ReceiptDomain, keccak256: Keccak256): (entry: Entry) => Uint8Array {
  const buffer = new Uint8Array(prefixBytes + entryBytesMax)
  buffer[0] = entryTag
  buffer.set(domainSeparator(domain, keccak256), 1)
  const encode = createEncoder(buffer, prefixBytes)
  return (entry) => keccak256(buffer.subarray(0, encode(entry)))
}

/** The bytes that are hashed after the prefix. Throws a RangeError for an entry that has no encoding. */
export function encodeEntry(entry: Entry): Uint8Array {
  const buffer = new Uint8Array(entryBytesMax)
  return buffer.subarray(0, createEncoder(buffer, 0)(entry))
}

/** Writes entries into one buffer, from `start` on; returns where the entry ends. */
function createEncoder(buffer: Uint8Array, start: number): (entry: Entry) => number {
  const view = new DataView(buffer.buffer)
  const encoder = new TextEncoder()
  let lastPayer = ''
  return (entry) => {
    buffer[start] = encodingVersion
    const kindIndex = entryKinds.indexOf(entry.kind)
    if (kindIndex === -1) throw new RangeError('kind is unknown')
    buffer[start + 1] = kindIndex + 1
    // The entries of a payment have one payer: its bytes stay in place.
    if (entry.payer !== lastPayer) {
      lastPayer = ''
      writeHex(entry.payer, payerBytes, buffer, start + 2)
      lastPayer = entry.payer
    }
    let offset = start + 2 + payerBytes
    for (const { name, min, max } of integerFields) {
      const value = entry[name]
      if (typeof value !== 'bigint' || value < min || value > max) throw new RangeError(`${name} is out of range`)
      view.setBigInt64(offset, value)
      offset += integerBytes
    }
    for (const name of textFields) {
      const text = entry[name]
      // A lone surrogate would be written as U+FFFD, like every other lone surrogate.
      if (!text.isWellFormed()) throw new RangeError(`${name} is not well-formed Unicode`)
      const place = buffer.subarray(offset + lengthBytes, offset + lengthBytes + textBytesMax)
      const { read, written } = encoder.encodeInto(text, place)
      if (read < text.length) throw new RangeError(`${name} is longer than ${textBytesMax} bytes`)
      view.setUint16(offset, written)
      offset += lengthBytes + written
    }
    return offset
  }
}
