import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { concat, type Hex, keccak256, toHex } from 'viem'
import { noReceipts, proveReceipt, receiptRoot } from './receipt-tree.ts'

const hash = fc.uint8Array({ minLength: 32, maxLength: 32 }).map((bytes) => toHex(bytes))
const hashes = fc.array(hash, { minLength: 1, maxLength: 40 })

test('the proof of every receipt leads to the root, and of nothing else', () => {
  fc.assert(
    fc.property(hashes, fc.nat(), hash, (all, seed, stranger) => {
      const index = seed % all.length
      const { root, proof } = proveReceipt(all, index)
      assert.equal(climb(keccak256(all[index]!), proof), root)
      assert.equal(root, receiptRoot(all))
      if (!all.includes(stranger)) assert.notEqual(climb(keccak256(stranger), proof), root)
    }),
  )
})

test('lists that differ have roots that differ', () => {
  fc.assert(
    fc.property(hashes, hash, (all, one) => {
      assert.notEqual(receiptRoot([...all, one]), receiptRoot(all))
      assert.notEqual(receiptRoot([...all, all.at(-1)!]), receiptRoot(all))
    }),
  )
})

// A fixed value: every later check of a receipt must compute the same root.
test('leaves are hashed once more, pairs are sorted, an odd leaf moves up, and the empty tree has root zero', () => {
  const [a, b, c] = [1, 2, 3].map((number) => toHex(number, { size: 32 })) as [Hex, Hex, Hex]
  const leaves = [a, b, c].map((leaf) => keccak256(leaf)) as [Hex, Hex, Hex]
  const pair = (one: Hex, other: Hex) => keccak256(concat([one, other].sort() as [Hex, Hex]))
  assert.equal(receiptRoot([]), noReceipts)
  assert.equal(receiptRoot([a]), leaves[0])
  assert.equal(receiptRoot([a, b, c]), pair(pair(leaves[0], leaves[1]), leaves[2]))
  assert.deepEqual(proveReceipt([a, b, c], 2).proof, [pair(leaves[0], leaves[1])])
})

function climb(leaf: Hex, proof: readonly Hex[]): Hex {
  return proof.reduce((node, sibling) => keccak256(concat([node, sibling].sort() as [Hex, Hex])), leaf)
}
