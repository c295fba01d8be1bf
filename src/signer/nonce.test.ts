import assert from 'node:assert/strict'
import { test } from 'node:test'
import { nonceOf, saltOf, sequenceMax } from './nonce.ts'

const account = '0190a1b2-c3d4-7000-8000-000000000001'

// Fixed values: with another rule a restarted service could sign one request twice under two nonces.
test('the nonce of a request never changes', () => {
  assert.equal(
    nonceOf('authorization', account, 0, 258n),
    '0x5f2a3453e500d424d69be84b7cd8c0b9356b47e2b8cfacbe0000000000000102',
  )
  assert.equal(saltOf('withdrawal', account), '0x3f56bebba4e40afcbd7e167c21fdd979349c185578f17ad036c55957f0507136')
})

test('256 consecutive requests share one word of the gateway’s bitmap', () => {
  const words = Array.from({ length: 512 }, (_, index) =>
    nonceOf('authorization', account, 0, BigInt(index)).slice(0, -2),
  )
  assert.equal(new Set(words.slice(0, 256)).size, 1)
  assert.equal(new Set(words).size, 2)
})

test('accounts, epochs and uses have nonces of their own', () => {
  const other = account.replace('1', '2')
  const keys = [
    nonceOf('authorization', account, 0, 0n),
    nonceOf('authorization', other, 0, 0n),
    nonceOf('authorization', account, 1, 0n),
    nonceOf('return', account, 0, 0n),
    nonceOf('deposit', account, 0, 0n),
  ].map((nonce) => nonce.slice(0, 50))
  assert.equal(new Set(keys).size, keys.length)
  assert.match(nonceOf('authorization', account, 0, sequenceMax), /^0x[0-9a-f]{48}7fffffffffffffff$/)
})

test('a sequence that the ledger cannot have is refused, not cut', () => {
  for (const sequence of [-1n, sequenceMax + 1n]) {
    assert.throws(() => nonceOf('authorization', account, 0, sequence), RangeError)
  }
  for (const epoch of [-1, 1.5, 2 ** 32]) assert.throws(() => nonceOf('authorization', account, epoch, 0n), RangeError)
})
