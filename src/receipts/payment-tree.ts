import type { Keccak256 } from './crypto.ts'
import { fromHex, type Hex, toHex, writeHex } from './hex.ts'
import type { ReceiptPayment } from './payment.ts'

// The tree of a payment:
//
// node  keccak256(0x01 ‖ left ‖ right); a node without a partner moves up unchanged root  keccak256(0x02 ‖ previous ‖ first ‖ last ‖ top
// node of the entries); first and last are unsigned, 8 bytes each
//
// Its leaves are the entries' hashes in order. The root also contains the previous payment's root and the range, so the proof of every
// entry also proves `previous`, the number of entries and the place of each.

const nodeTag = 0x01
const rootTag = 0x02
const hashBytes = 32

export type PaymentRange = Pick<ReceiptPayment, 'previous' | 'first' | 'last'>

/** Computes the root over entry hashes that are added one by one, in constant memory. */
export class PaymentRootBuilder {
  readonly #hashNode: NodeHasher
  readonly #keccak256: Keccak256
  /** Tops of full subtrees, the largest first. */
  #tops: { readonly size: number; readonly hash: Uint8Array }[] = []
  #count = 0

  constructor(keccak256: Keccak256) {
    this.#keccak256 = keccak256
    this.#hashNode = createNodeHasher(keccak256)
  }

  get count(): number {
    return this.#count
  }

  add(entryHash: Uint8Array): void {
    let top = { size: 1, hash: entryHash }
    while (this.#tops.at(-1)?.size === top.size) {
      top = { size: top.size * 2, hash: this.#hashNode(this.#tops.pop()!.hash, top.hash) }
    }
    this.#tops.push(top)
    this.#count += 1
  }

  /** The root so far. Throws a RangeError when the entries added are not as many as the range has. */
  root(range: PaymentRange): Hex {
    if (this.#count === 0 || BigInt(this.#count) !== range.last - range.first + 1n) {
      throw new RangeError(`${this.#count} entries do not fill the range ${range.first} to ${range.last}`)
    }
    const top = this.#tops
      .map(({ hash }) => hash)
      .reduceRight((right: Uint8Array | undefined, left) => (right ? this.#hashNode(left, right) : left), undefined)!
    return hashRoot(range, top, this.#keccak256)
  }
}

/** The whole tree of one payment, for the proofs of its entries. Keep it to compute several proofs. */
export class PaymentTree {
  readonly root: Hex
  readonly #first: bigint
  readonly #levels: readonly (readonly Uint8Array[])[]

  /** Throws a RangeError when the hashes are not as many as the range has. */
  constructor(range: PaymentRange, entryHashes: readonly Uint8Array[], keccak256: Keccak256) {
    if (entryHashes.length === 0 || BigInt(entryHashes.length) !== range.last - range.first + 1n) {
      throw new RangeError(`${entryHashes.length} entries do not fill the range ${range.first} to ${range.last}`)
    }
    const hashNode = createNodeHasher(keccak256)
    const levels = [entryHashes]
    for (let level = entryHashes; level.length > 1; level = levels.at(-1)!) {
      const parents: Uint8Array[] = []
      for (let place = 0; place < level.length; place += 2) {
        const [left, right] = [level[place]!, level[place + 1]]
        parents.push(right === undefined ? left : hashNode(left, right))
      }
      levels.push(parents)
    }
    this.#first = range.first
    this.#levels = levels
    this.root = hashRoot(range, levels.at(-1)![0]!, keccak256)
  }

  /** The siblings from an entry up to the top, by the entry's number. */
  prove(number: bigint): readonly Hex[] {
    const proof: Hex[] = []
    let place = Number(number - this.#first)
    if (this.#levels[0]![place] === undefined) throw new RangeError(`entry ${number} is not in this payment`)
    for (const level of this.#levels) {
      const sibling = level[place ^ 1]
      if (sibling !== undefined) proof.push(toHex(sibling))
      place >>= 1
    }
    return proof
  }
}

/**
 * The root that a proof leads to, for an entry at its place in the range. Undefined when the proof does not have the length that
 * this place requires.
 */
export function rootOfProof(
  range: PaymentRange,
  entry: { readonly number: bigint; readonly hash: Uint8Array },
  proof: readonly Hex[],
  keccak256: Keccak256,
): Hex | undefined {
  if (entry.number < range.first || entry.number > range.last) return undefined
  const hashNode = createNodeHasher(keccak256)
  const siblings = proof.map((hash) => fromHex(hash, hashBytes))
  let node = entry.hash
  let place = entry.number - range.first
  for (let size = range.last - range.first + 1n; size > 1n; size = (size + 1n) / 2n) {
    const isLeft = place % 2n === 0n
    if (!isLeft || place + 1n < size) {
      const sibling = siblings.shift()
      if (sibling === undefined) return undefined
      node = isLeft ? hashNode(node, sibling) : hashNode(sibling, node)
    }
    place /= 2n
  }
  return siblings.length === 0 ? hashRoot(range, node, keccak256) : undefined
}

/**
 * The batch root that a proof leads to from a payment's root. The gateway's tree (`gateway/receipt-tree.ts`) hashes leaves once
 * more and sorts pairs.
 */
export function batchRootOfProof(paymentRoot: Hex, proof: readonly Hex[], keccak256: Keccak256): Hex {
  const pair = new Uint8Array(2 * hashBytes)
  let node = toHex(keccak256(fromHex(paymentRoot, hashBytes)))
  for (const sibling of proof) {
    const [low, high] = node < sibling ? [node, sibling] : [sibling, node]
    writeHex(low, hashBytes, pair, 0)
    writeHex(high, hashBytes, pair, hashBytes)
    node = toHex(keccak256(pair))
  }
  return node
}

type NodeHasher = (left: Uint8Array, right: Uint8Array) => Uint8Array

function createNodeHasher(keccak256: Keccak256): NodeHasher {
  const bytes = new Uint8Array(1 + 2 * hashBytes)
  bytes[0] = nodeTag
  return (left, right) => {
    bytes.set(left, 1)
    bytes.set(right, 1 + hashBytes)
    return keccak256(bytes)
  }
}

function hashRoot({ previous, first, last }: PaymentRange, top: Uint8Array, keccak256: Keccak256): Hex {
  const bytes = new Uint8Array(1 + hashBytes + 8 + 8 + hashBytes)
  const view = new DataView(bytes.buffer)
  bytes[0] = rootTag
  writeHex(previous, hashBytes, bytes, 1)
  view.setBigUint64(1 + hashBytes, first)
  view.setBigUint64(9 + hashBytes, last)
  bytes.set(top, 17 + hashBytes)
  return toHex(keccak256(bytes))
}
