import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { keccak256 } from '../signer/keccak.ts'
import {
  createTreeHasher,
  type SumNode,
  siblingsOf,
  sumMax,
  topOfPath,
  treeHeight,
  treeLevels,
} from './liability-tree.ts'
import { viemCrypto } from './viem-crypto.ts'

const hasher = createTreeHasher(keccak256)
const account = (index: number) => `00000000-0000-7000-8000-${index.toString(16).padStart(12, '0')}`
const leafOf = (amount: bigint, index: number) =>
  hasher.leaf({ salt: keccak256(`salt ${index}`), account: account(index), amount })

/** The whole tree with every zero leaf, as its definition says: no shortcut for empty subtrees. */
function plainTop(leaves: readonly SumNode[]): SumNode {
  const zero = hasher.leaf({ salt: new Uint8Array(32), account: account(0).replaceAll(/[78]/g, '0'), amount: 0n })
  let level = Array.from({ length: 2 ** treeHeight(leaves.length) }, (_, place) => leaves[place] ?? zero)
  while (level.length > 1) {
    level = Array.from({ length: level.length / 2 }, (_, place) =>
      hasher.node(level[2 * place]!, level[2 * place + 1]!),
    )
  }
  return level[0]!
}

test('every leaf of a tree of any size proves that its amount is part of the sum', () => {
  fc.assert(
    fc.property(fc.array(fc.bigInt(0n, 2n ** 63n), { maxLength: 40 }), fc.nat(4), (amounts, cut) => {
      const leaves = amounts.map(leafOf)
      const height = treeHeight(leaves.length)
      const levels = treeLevels(leaves, { from: 0, to: height }, hasher)
      const top = levels.at(-1)![0]!
      assert.deepEqual(top, plainTop(leaves))
      assert.equal(
        top.sum,
        amounts.reduce((sum, amount) => sum + amount, 0n),
      )
      for (const [place, leaf] of leaves.entries()) {
        const path = siblingsOf(levels, place, 0, hasher)
        assert.equal(path.length, height)
        assert.deepEqual(topOfPath(leaf, BigInt(place), path, hasher), top)
      }
      // The same tree from subtrees of any height.
      const low = Math.min(cut, height)
      const tops = Array.from({ length: Math.ceil(leaves.length / 2 ** low) }, (_, part) => {
        const inside = leaves.slice(part * 2 ** low, (part + 1) * 2 ** low)
        return treeLevels(inside, { from: 0, to: low }, hasher).at(-1)![0]!
      })
      assert.deepEqual(treeLevels(tops, { from: low, to: height }, hasher).at(-1)![0], top)
    }),
    { numRuns: 60 },
  )
})

test('a negative amount, and a sum that could overflow, cannot be hashed', () => {
  assert.throws(() => leafOf(-1n, 0), RangeError)
  assert.throws(() => leafOf(sumMax + 1n, 0), RangeError)
  const { hash } = leafOf(0n, 0)
  assert.throws(() => hasher.node({ hash, sum: sumMax }, { hash, sum: 1n }), RangeError)
  assert.throws(() => hasher.node({ hash, sum: 5n }, { hash, sum: -5n }), RangeError)
})

test('a leaf cannot pass for a node, and a browser computes the same hashes', () => {
  const leaf = { salt: keccak256('salt'), account: account(7), amount: 23_980_000n }
  const inBrowser = createTreeHasher(viemCrypto.keccak256)
  assert.deepEqual(Buffer.from(inBrowser.leaf(leaf).hash), Buffer.from(hasher.leaf(leaf).hash))
  const bytes = Buffer.concat([
    Buffer.from([3]),
    leaf.salt,
    Buffer.from(leaf.account.replaceAll('-', ''), 'hex'),
    Buffer.from((23_980_000).toString(16).padStart(32, '0'), 'hex'),
  ])
  assert.deepEqual(hasher.leaf(leaf).hash, keccak256(bytes))
  const [left, right] = [leafOf(1n, 1), leafOf(2n, 2)]
  const sumBytes = (sum: number) => Buffer.from(sum.toString(16).padStart(32, '0'), 'hex')
  const node = Buffer.concat([Buffer.from([4]), left.hash, sumBytes(1), right.hash, sumBytes(2)])
  assert.deepEqual(hasher.node(left, right), { hash: keccak256(node), sum: 3n })
})
