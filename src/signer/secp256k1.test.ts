import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { test } from 'node:test'
import fc from 'fast-check'
import wycheproof from './__fixtures__/wycheproof-secp256k1.json' with { type: 'json' }
import { keccak256 } from './keccak.ts'
import { addressOfKey, isPrivateKey, recoverAddress, signDigest } from './secp256k1.ts'

const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n
const key = Buffer.from('7b'.repeat(32), 'hex')
const digest = Buffer.from('2f'.repeat(32), 'hex')

test('zero, the curve’s order and everything above it are not valid keys', () => {
  for (const [number, expected] of [
    [0n, false],
    [1n, true],
    [order - 1n, true],
    [order, false],
    [2n ** 256n - 1n, false],
  ] as const) {
    assert.equal(isPrivateKey(Buffer.from(number.toString(16).padStart(64, '0'), 'hex')), expected, String(number))
  }
})

test('signing twice gives the same bytes', () => {
  assert.equal(signDigest(digest, key), signDigest(Buffer.from(digest), Buffer.from(key)))
})

test('a signature in any other form than the token accepts is invalid', () => {
  const signature = signDigest(digest, key)
  assert.equal(recoverAddress(digest, signature), addressOfKey(key))
  const [r, s, v] = [signature.slice(2, 66), signature.slice(66, 130), signature.slice(130)]
  const highS = (order - BigInt(`0x${s}`)).toString(16).padStart(64, '0')
  const wrong = [
    `0x${r}${highS}${v === '1b' ? '1c' : '1b'}`,
    `0x${r}${s}00`,
    `0x${r}${s}1d`,
    `0x${r}${s}`,
    `0x${r}${s}${v}00`,
    signature.toUpperCase(),
    `0x${'0'.repeat(64)}${s}${v}`,
    `0x${r}${'0'.repeat(64)}${v}`,
    `0x${'f'.repeat(64)}${s}${v}`,
    '',
    '0x',
  ]
  for (const text of wrong) assert.equal(recoverAddress(digest, text), undefined, text)
})

test('a signature with any one byte changed is not the signer’s', () => {
  const signature = signDigest(digest, key)
  const signer = addressOfKey(key)
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 64 }), fc.integer({ min: 1, max: 255 }), (index, change) => {
      const bytes = Buffer.from(signature.slice(2), 'hex')
      bytes[index] = bytes[index]! ^ change
      assert.notEqual(recoverAddress(digest, `0x${bytes.toString('hex')}`), signer)
    }),
  )
  assert.notEqual(recoverAddress(randomBytes(32), signature), signer)
})

test('signatures of Wycheproof recover their signer exactly if they are valid and have a low s', () => {
  for (const { key: publicKey, tests } of wycheproof.groups) {
    const signer = `0x${keccak256(Buffer.from(publicKey, 'hex').subarray(1)).toString('hex', 12)}`
    for (const { id, comment, msg, sig, result } of tests) {
      const signed = createHash('sha256').update(Buffer.from(msg, 'hex')).digest()
      const isRecovered = ['1b', '1c'].some((v) => recoverAddress(signed, `0x${sig}${v}`) === signer)
      const hasLowS = sig.length === 128 && BigInt(`0x${sig.slice(64)}`) <= order / 2n
      assert.equal(isRecovered, result === 'valid' && hasLowS, `${id} ${comment}`)
    }
  }
})
