import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { getAddress, keccak256 as viemKeccak256 } from 'viem'
import { checksummed, parseAddress } from './address.ts'
import { keccak256 } from './keccak.ts'

const anyAddress = fc
  .uint8Array({ minLength: 20, maxLength: 20 })
  .map((bytes) => `0x${Buffer.from(bytes).toString('hex')}` as const)

test('addresses are shown with the checksum that every wallet knows', () => {
  fc.assert(fc.property(anyAddress, (text) => assert.equal(checksummed(parseAddress(text)!), getAddress(text))))
})

test('an address with one letter in the wrong case is known to be mistyped', () => {
  const right = '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed'
  assert.equal(parseAddress(right), right.toLowerCase())
  assert.equal(parseAddress(right.toLowerCase()), right.toLowerCase())
  assert.equal(parseAddress(`0x${right.slice(2).toUpperCase()}`), right.toLowerCase())
  for (let index = 2; index < right.length; index += 1) {
    const digit = right[index]!
    const other = digit === digit.toLowerCase() ? digit.toUpperCase() : digit.toLowerCase()
    if (other !== digit) assert.equal(parseAddress(right.slice(0, index) + other + right.slice(index + 1)), undefined)
  }
})

test('invalid addresses are refused', () => {
  for (const text of ['', '0x', '0x12', `0x${'g'.repeat(40)}`, '0'.repeat(42), ` 0x${'0'.repeat(40)}`, 'vitalik.eth']) {
    assert.equal(parseAddress(text), undefined, text)
  }
})

test('keccak-256 matches known hashes', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 500 }), (bytes) =>
      assert.equal(`0x${keccak256(bytes).toString('hex')}`, viemKeccak256(bytes)),
    ),
  )
})
