import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { hashStruct, hashTypedData, recoverTypedDataAddress } from 'viem'
import { issuer, issuerKey } from '../../test/support/receipts.ts'
import { keccak256 } from '../signer/keccak.ts'
import { signDigest } from '../signer/secp256k1.ts'
import { type Hex, toHex, zeroHash } from './hex.ts'
import { isCanonicalSignature, paymentDigest, paymentStructHash } from './payment.ts'
import { viemCrypto } from './viem-crypto.ts'

const bytes = (size: number) => fc.uint8Array({ minLength: size, maxLength: size }).map((value) => toHex(value))
const uint64 = fc.bigInt(0n, 2n ** 64n - 1n)

const anyPayment = fc.record({
  payer: bytes(20),
  number: uint64,
  first: uint64,
  last: uint64,
  value: fc.bigInt(-(2n ** 63n), 2n ** 63n - 1n),
  nonce: bytes(32),
  root: bytes(32),
})
const anyDomain = fc.record({ chainId: fc.bigInt(1n, 2n ** 53n - 1n), gatewayWallet: bytes(20) })

const types = {
  Payment: [
    { name: 'payer', type: 'address' },
    { name: 'number', type: 'uint256' },
    { name: 'first', type: 'uint256' },
    { name: 'last', type: 'uint256' },
    { name: 'value', type: 'int256' },
    { name: 'nonce', type: 'bytes32' },
    { name: 'root', type: 'bytes32' },
  ],
} as const

// Wallets and auditors check our signatures with the libraries they have.
test('the digest of a payment is the one that viem computes, and its signature recovers with viem', async () => {
  await fc.assert(
    fc.asyncProperty(anyPayment, anyDomain, async (message, { chainId, gatewayWallet }) => {
      const typedData = {
        domain: { name: 'PennyReceipt', version: '2', chainId, verifyingContract: gatewayWallet },
        types,
        primaryType: 'Payment',
        message,
      } as const
      const payment = { ...message, previous: zeroHash }
      for (const hash of [keccak256, viemCrypto.keccak256]) {
        assert.equal(toHex(paymentDigest(payment, { chainId, gatewayWallet }, hash)), hashTypedData(typedData))
        const struct = hashStruct({ data: message, primaryType: 'Payment', types })
        assert.equal(toHex(paymentStructHash(payment, hash)), struct)
      }
      const signature = signDigest(paymentDigest(payment, { chainId, gatewayWallet }, keccak256), issuerKey)
      assert.ok(isCanonicalSignature(signature))
      assert.equal((await recoverTypedDataAddress({ ...typedData, signature })).toLowerCase(), issuer)
    }),
  )
})

const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n

test('a signature has one form: its mirror image, which recovers to the same key, does not count', async () => {
  const digest = keccak256('a payment')
  const signature = signDigest(digest, issuerKey)
  const s = order - BigInt(`0x${signature.slice(66, 130)}`)
  const v = signature.endsWith('1b') ? '1c' : '1b'
  const mirrored: Hex = `0x${signature.slice(2, 66)}${s.toString(16).padStart(64, '0')}${v}`
  assert.equal(await viemCrypto.recoverAddress(digest, mirrored), issuer)
  assert.equal(isCanonicalSignature(mirrored), false)
  assert.equal(isCanonicalSignature(`${signature.slice(0, -2)}00`), false)
  assert.equal(isCanonicalSignature(`${signature}00`), false)
})
