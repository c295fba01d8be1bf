import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { privateKeyToAddress } from 'viem/accounts'
import { AccountKeys, deriveSigningKey } from './account-keys.ts'

const masterKey = Buffer.from('5e'.repeat(32), 'hex')
const account = '0190a1b2-c3d4-7000-8000-000000000001'

// Fixed values: there is money at these addresses.
test('an account’s address follows from the master key and never changes', () => {
  const keys = new AccountKeys(masterKey)
  assert.equal(keys.ofAccount(account).address, '0x745cea1b35a4fb46521fd90a0f01f8ae477d8c26')
  assert.equal(keys.ofRole('seller').address, '0xa4d8cb7b3032890c0f0dff074e48c74d226f44d4')
  assert.equal(keys.ofRole('relayer').address, '0x11c3d2a7e6b829c02fbce7b3cee454a7f50fc212')
})

test('the address is the one that every wallet derives from the key', () => {
  const keys = new AccountKeys(masterKey)
  fc.assert(
    fc.property(fc.uuid(), (id) => {
      const { privateKey, address } = keys.ofAccount(id)
      assert.equal(address, privateKeyToAddress(`0x${privateKey.toString('hex')}`).toLowerCase())
    }),
    { numRuns: 50 },
  )
})

test('no two owners share a key, and another master key shares none', () => {
  const [keys, others] = [new AccountKeys(masterKey), new AccountKeys(Buffer.alloc(32, 1))]
  const ids = Array.from({ length: 100 }, (_, index) => account.replace(/.{3}$/, String(index).padStart(3, '0')))
  const addresses = [keys, others].flatMap((ring) => [
    ...ids.map((id) => ring.ofAccount(id).address),
    ring.ofRole('seller').address,
    ring.ofRole('relayer').address,
  ])
  assert.equal(new Set(addresses).size, addresses.length)
})

test('bytes that are not a valid key are skipped, deterministically', () => {
  const first = deriveSigningKey(masterKey, 'x')
  const second = deriveSigningKey(masterKey, 'x', (bytes) => !first.equals(bytes))
  assert.notDeepEqual(second, first)
  assert.deepEqual(
    deriveSigningKey(masterKey, 'x', (bytes) => !first.equals(bytes)),
    second,
  )
  assert.throws(() => deriveSigningKey(masterKey, 'x', () => false))
})

test('an evicted key is wiped, and derived again on demand', () => {
  const keys = new AccountKeys(masterKey, 1)
  const { privateKey, address } = keys.ofAccount(account)
  keys.ofAccount(account.replace('1', '2'))
  assert.ok(privateKey.every((byte) => byte === 0))
  assert.equal(keys.ofAccount(account).address, address)
})
