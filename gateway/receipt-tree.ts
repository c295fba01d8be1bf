import { concat, type Hex } from 'viem'
import { keccak256 } from './keccak.ts'

/** The root of a batch without receipts. */
export const noReceipts: Hex = `0x${'0'.repeat(64)}`

export type ReceiptProof = {
  readonly root: Hex
  /** Siblings from the leaf to the root. */
  readonly proof: readonly Hex[]
}

/** The Merkle root over receipt hashes, in order. */
export function receiptRoot(hashes: readonly Hex[]): Hex {
  return new ReceiptTree(hashes).root
}

/** Proves that the hash at an index is under the root. */
export function proveReceipt(hashes: readonly Hex[], index: number): ReceiptProof {
  return new ReceiptTree(hashes).prove(index)
}

/** The tree over the receipts of a batch, hashed once for all of its proofs. */
export class ReceiptTree {
  readonly #levels: readonly (readonly Hex[])[]

  constructor(hashes: readonly Hex[]) {
    this.#levels = levelsOf(hashes)
  }

  get root(): Hex {
    return this.#levels.at(-1)?.[0] ?? noReceipts
  }

  prove(index: number): ReceiptProof {
    const proof: Hex[] = []
    let place = index
    for (const level of this.#levels.slice(0, -1)) {
      const sibling = level[place ^ 1]
      if (sibling !== undefined) proof.push(sibling)
      place >>= 1
    }
    return { root: this.root, proof }
  }
}

// Leaves are hashed once more, so that an inner node cannot pass as a receipt (second preimage).
function levelsOf(hashes: readonly Hex[]): readonly (readonly Hex[])[] {
  if (hashes.length === 0) return []
  const levels: Hex[][] = [hashes.map((hash) => keccak256(hash))]
  for (let level = levels[0]!; level.length > 1; level = levels.at(-1)!) {
    const parents: Hex[] = []
    for (let place = 0; place < level.length; place += 2) {
      const [left, right] = [level[place]!, level[place + 1]]
      // An odd node is promoted, not paired with itself: two different lists must not share a root.
      parents.push(right === undefined ? left : hashPair(left, right))
    }
    levels.push(parents)
  }
  return levels
}

// Sorted, so that a proof needs no left and right.
function hashPair(one: Hex, other: Hex): Hex {
  return keccak256(one < other ? concat([one, other]) : concat([other, one]))
}
