import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { receiptRoot } from '../../gateway/receipt-tree.ts'
import { entryOf, pay, settleInBatch } from '../../test/support/receipts.ts'
import { keccak256 } from '../signer/keccak.ts'
import { type Hex, toHex, zeroHash } from './hex.ts'
import { batchRootOfProof, PaymentRootBuilder, PaymentTree, rootOfProof } from './payment-tree.ts'

const hash = fc.uint8Array({ minLength: 32, maxLength: 32 })
const hashes = fc.array(hash, { minLength: 1, maxLength: 70 })
const hex32 = hash.map((bytes) => toHex(bytes))
const firstNumber = fc.bigInt(1n, 2n ** 40n)

function rangeOf(first: bigint, count: number, previous: Hex = zeroHash) {
  return { previous, first, last: first + BigInt(count) - 1n }
}

function rootOf(all: readonly Uint8Array[], range: ReturnType<typeof rangeOf>): Hex {
  const builder = new PaymentRootBuilder(keccak256)
  for (const one of all) builder.add(one)
  return builder.root(range)
}

test('every entry has a proof that leads to the root, at its own place only', () => {
  fc.assert(
    fc.property(hashes, firstNumber, hex32, fc.nat(), (all, first, previous, seed) => {
      const range = rangeOf(first, all.length, previous)
      const tree = new PaymentTree(range, all, keccak256)
      assert.equal(rootOf(all, range), tree.root)
      const place = seed % all.length
      const number = first + BigInt(place)
      const proof = tree.prove(number)
      const climb = (at: bigint, leaf: Uint8Array, way = proof, within = range) =>
        rootOfProof(within, { number: at, hash: leaf }, way, keccak256)
      assert.equal(climb(number, all[place]!), tree.root)
      for (let other = range.first; other <= range.last; other += 1n) {
        if (other !== number) assert.notEqual(climb(other, all[place]!), tree.root)
      }
      assert.notEqual(climb(number, keccak256(all[place]!)), tree.root)
      assert.equal(climb(number, all[place]!, [...proof, zeroHash]), undefined)
      if (proof.length > 0) assert.equal(climb(number, all[place]!, proof.slice(1)), undefined)
      assert.notEqual(climb(number, all[place]!, proof, { ...range, previous: toHex(keccak256(previous)) }), tree.root)
      assert.notEqual(climb(number, all[place]!, proof, { ...range, last: range.last + 1n }), tree.root)
      assert.equal(climb(range.first - 1n, all[0]!), undefined)
      assert.equal(climb(range.last + 1n, all.at(-1)!), undefined)
    }),
  )
})

test('a different list, order, range or predecessor has a different root', () => {
  fc.assert(
    fc.property(hashes, hash, firstNumber, (all, one, first) => {
      const range = rangeOf(first, all.length)
      const root = rootOf(all, range)
      const others = [
        rootOf([...all, one], rangeOf(first, all.length + 1)),
        rootOf([...all, all.at(-1)!], rangeOf(first, all.length + 1)),
        rootOf(all, rangeOf(first + 1n, all.length)),
        rootOf(all, { ...range, previous: toHex(one) }),
      ]
      assert.ok(!others.includes(root) || BigInt(toHex(one)) === 0n)
      if (!Buffer.from(one).equals(Buffer.from(all[0]!))) assert.notEqual(rootOf([one, ...all.slice(1)], range), root)
    }),
  )
})

// Fixed values, like the encoding.
test('nodes begin with 1, the root with 2, and a node without a partner moves up', () => {
  const [a, b, c] = ['a', 'b', 'c'].map((text) => keccak256(text)) as [Buffer, Buffer, Buffer]
  const node = (left: Buffer, right: Buffer) => keccak256(Buffer.concat([Buffer.of(1), left, right]))
  const previous = keccak256('previous')
  const numbers = Buffer.alloc(16)
  numbers.writeBigUInt64BE(5n)
  numbers.writeBigUInt64BE(7n, 8)
  const root = keccak256(Buffer.concat([Buffer.of(2), previous, numbers, node(node(a, b), c)]))
  assert.equal(rootOf([a, b, c], rangeOf(5n, 3, toHex(previous))), toHex(root))
})

// An inner node has 65 bytes below it and a first byte of its own: it cannot be passed off as an entry of a shorter list.
test('an inner node is not an entry', () => {
  const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((text) => keccak256(text)) as [Buffer, Buffer, Buffer, Buffer]
  const node = (left: Buffer, right: Buffer) => keccak256(Buffer.concat([Buffer.of(1), left, right]))
  const inner = [node(a, b), node(c, d)]
  assert.notEqual(rootOf(inner, rangeOf(1n, 2)), rootOf([a, b, c, d], rangeOf(1n, 4)))
})

test('entries that do not fill the range have no root', () => {
  const one = keccak256('a')
  assert.throws(() => rootOf([one], rangeOf(1n, 2)), RangeError)
  assert.throws(() => rootOf([], { previous: zeroHash, first: 1n, last: 0n }), RangeError)
  assert.throws(() => new PaymentTree(rangeOf(1n, 2), [one], keccak256), RangeError)
  assert.throws(() => new PaymentTree(rangeOf(1n, 1), [one], keccak256).prove(2n), RangeError)
})

test('the proof of the gateway leads from the payment to the root of its batch', () => {
  const payment = settleInBatch(pay([entryOf(1n)]))
  const { root, proof } = payment.batch!
  assert.equal(batchRootOfProof(payment.root, proof, keccak256), root)
  assert.notEqual(batchRootOfProof(zeroHash, proof, keccak256), root)
  assert.equal(batchRootOfProof(payment.root, [], keccak256), receiptRoot([payment.root]))
})
