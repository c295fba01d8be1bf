import type { Keccak256 } from './crypto.ts'
import { writeHex } from './hex.ts'

// A Merkle-sum tree over what the service owes at one instant. Each node commits to the sum below it, so one path proves that an
// amount is part of the sum at the top.
//
//   leaf  keccak256(0x03 ‖ salt ‖ account ‖ amount)
//   node  keccak256(0x04 ‖ left hash ‖ left sum ‖ right hash ‖ right sum)
//
// Salts and hashes have 32 bytes, an account's id 16, amounts and sums 16 (unsigned, big-endian). Places without an account are zero
// leaves, whose bytes are all 0. The first bytes continue the list in entry.ts. A node contains both sums, not only their total: with
// the total alone, a service could add a negative amount on one side and leave it out of every path.

const leafTag = 0x03
const nodeTag = 0x04
const hashBytes = 32
const accountBytes = 16
const sumBytes = 16

/** Far above all USDC there is. No sum of two amounts below it overflows 16 bytes. */
export const sumMax = 2n ** 96n
export const treeHeightMax = 32

export type SumNode = { readonly hash: Uint8Array; readonly sum: bigint }

export type Leaf = {
  /** Hides the amount: without it, the hash of an account's leaf could be guessed. */
  readonly salt: Uint8Array
  /** A UUID. */
  readonly account: string
  readonly amount: bigint
}

export type TreeHasher = {
  leaf(leaf: Leaf): SumNode
  node(left: SumNode, right: SumNode): SumNode
  /** The node of that height over zero leaves only. */
  empty(height: number): SumNode
}

/** The height of the tree over that many leaves; 0 for none or one. */
export function treeHeight(leaves: number): number {
  return leaves <= 1 ? 0 : Math.ceil(Math.log2(leaves))
}

/** Reuse it: it owns the buffers that are hashed. All three throw a RangeError for an amount or a sum below 0 or above `sumMax`. */
export function createTreeHasher(keccak256: Keccak256): TreeHasher {
  const leafBuffer = new Uint8Array(1 + hashBytes + accountBytes + sumBytes)
  leafBuffer[0] = leafTag
  const leafView = new DataView(leafBuffer.buffer)
  const nodeBuffer = new Uint8Array(1 + 2 * (hashBytes + sumBytes))
  nodeBuffer[0] = nodeTag
  const nodeView = new DataView(nodeBuffer.buffer)
  const hashNode = (left: SumNode, right: SumNode): SumNode => {
    for (const [offset, { hash, sum }] of [
      [1, left],
      [1 + hashBytes + sumBytes, right],
    ] as const) {
      nodeBuffer.set(hash, offset)
      writeSum(sum, nodeView, offset + hashBytes)
    }
    return { hash: keccak256(nodeBuffer), sum: requireSum(left.sum + right.sum) }
  }
  const empties: SumNode[] = [{ hash: keccak256(new Uint8Array(leafBuffer)), sum: 0n }]
  return {
    leaf({ salt, account, amount }) {
      leafBuffer.set(salt, 1)
      writeHex(`0x${account.replaceAll('-', '')}`, accountBytes, leafBuffer, 1 + hashBytes)
      writeSum(amount, leafView, 1 + hashBytes + accountBytes)
      return { hash: keccak256(leafBuffer), sum: amount }
    },
    node: hashNode,
    empty(height) {
      for (let top = empties.at(-1)!; empties.length <= height; top = empties.at(-1)!) empties.push(hashNode(top, top))
      return empties[height]!
    },
  }
}

/**
 * The levels of a tree, from `nodes`, which have the height `from`, up to one node of the height `to`. Nodes over zero leaves only are
 * left out, except for the top.
 */
export function treeLevels(
  nodes: readonly SumNode[],
  { from, to }: { readonly from: number; readonly to: number },
  hasher: TreeHasher,
): readonly (readonly SumNode[])[] {
  const levels = [nodes.length === 0 ? [hasher.empty(from)] : nodes]
  for (let height = from; height < to; height += 1) {
    const level = levels.at(-1)!
    const parents: SumNode[] = []
    for (let place = 0; place < level.length; place += 2) {
      parents.push(hasher.node(level[place]!, level[place + 1] ?? hasher.empty(height)))
    }
    levels.push(parents)
  }
  return levels
}

/** The siblings of a node from its own level up to the top. `from` is the height of the first level. */
export function siblingsOf(
  levels: readonly (readonly SumNode[])[],
  place: number,
  from: number,
  hasher: TreeHasher,
): readonly SumNode[] {
  return levels.slice(0, -1).map((level, index) => level[(place >> index) ^ 1] ?? hasher.empty(from + index))
}

/** The top that a path leads to, from a leaf at its place. */
export function topOfPath(leaf: SumNode, place: bigint, path: readonly SumNode[], hasher: TreeHasher): SumNode {
  return path.reduce(
    (node, sibling, height) =>
      (place >> BigInt(height)) % 2n === 0n ? hasher.node(node, sibling) : hasher.node(sibling, node),
    leaf,
  )
}

function requireSum(sum: bigint): bigint {
  if (sum < 0n || sum > sumMax) throw new RangeError(`${sum} is not between 0 and ${sumMax}`)
  return sum
}

function writeSum(sum: bigint, view: DataView, offset: number): void {
  requireSum(sum)
  view.setBigUint64(offset, sum >> 64n)
  view.setBigUint64(offset + 8, sum & 0xffff_ffff_ffff_ffffn)
}
