import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { hashTypedData, recoverTypedDataAddress } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { burnIntentTypes, transferFields } from '../../test/support/circle-types.ts'
import type { Hex } from '../receipts/hex.ts'
import { type Address, parseAddress } from './address.ts'
import { addressOfKey, recoverAddress, signDigest } from './secp256k1.ts'
import { type BurnIntent, burnIntentDigest, domainSeparator, type TransferType, transferDigest } from './typed-data.ts'

const bytes = (length: number) =>
  fc.uint8Array({ minLength: length, maxLength: length }).map((value): Hex => `0x${Buffer.from(value).toString('hex')}`)
const uint256 = fc.oneof(fc.bigInt(0n, 2n ** 256n - 1n), fc.bigInt(0n, 10n ** 9n))
const seconds = fc.integer({ min: 0, max: 2 ** 40 })
const anyAddress = bytes(20) as fc.Arbitrary<Address>
const privateKey = bytes(32).filter((key) => BigInt(key) > 0n && BigInt(key) < 2n ** 255n)

const anyTransfer = fc.record({
  type: fc.constantFrom<TransferType>('TransferWithAuthorization', 'ReceiveWithAuthorization'),
  domain: fc.record({
    name: fc.string({ minLength: 1 }),
    version: fc.string({ minLength: 1 }),
    chainId: fc.integer({ min: 1, max: 2 ** 48 }),
    verifyingContract: anyAddress,
  }),
  message: fc.record({
    from: anyAddress,
    to: anyAddress,
    value: uint256,
    validAfter: seconds,
    validBefore: seconds,
    nonce: bytes(32),
  }),
})

const transferTypes = { TransferWithAuthorization: transferFields, ReceiveWithAuthorization: transferFields }

// Wallets, contracts and auditors must be able to check our signatures with their standard tools.
test('every signature is, to the byte, the one that viem makes of the same typed data', async () => {
  await fc.assert(
    fc.asyncProperty(anyTransfer, privateKey, async ({ type, domain, message }, key) => {
      const account = privateKeyToAccount(key)
      const keyBytes = Buffer.from(key.slice(2), 'hex')
      assert.equal(addressOfKey(keyBytes), account.address.toLowerCase())
      const digest = transferDigest(domainSeparator(domain), type, message)
      const signature = signDigest(digest, keyBytes)
      const typedData = {
        domain,
        types: transferTypes,
        primaryType: type,
        message: { ...message, validAfter: BigInt(message.validAfter), validBefore: BigInt(message.validBefore) },
      } as const
      assert.equal(signature, await account.signTypedData(typedData))
      assert.equal(await recoverTypedDataAddress({ ...typedData, signature }), account.address)
      assert.equal(recoverAddress(digest, signature), account.address.toLowerCase())
    }),
    { numRuns: 150 },
  )
})

const word = bytes(32)
const uint32 = fc.integer({ min: 0, max: 2 ** 32 - 1 })
const anyIntent: fc.Arbitrary<BurnIntent> = fc.record({
  maxBlockHeight: uint256,
  maxFee: uint256,
  spec: fc.record({
    version: uint32,
    sourceDomain: uint32,
    destinationDomain: uint32,
    sourceContract: word,
    destinationContract: word,
    sourceToken: word,
    destinationToken: word,
    sourceDepositor: word,
    destinationRecipient: word,
    sourceSigner: word,
    destinationCaller: word,
    value: uint256,
    salt: word,
    hookData: fc.uint8Array({ maxLength: 70 }).map((value): Hex => `0x${Buffer.from(value).toString('hex')}`),
  }),
})

const intentTypes = {
  EIP712Domain: [
    { name: 'name', type: 'string' },
    { name: 'version', type: 'string' },
  ],
  ...burnIntentTypes,
} as const

test('a burn intent has the digest that Circle’s gateway computes', () => {
  fc.assert(
    fc.property(anyIntent, (intent) => {
      const expected = hashTypedData({
        domain: { name: 'GatewayWallet', version: '1' },
        types: intentTypes,
        primaryType: 'BurnIntent',
        message: intent,
      })
      assert.equal(`0x${burnIntentDigest(intent).toString('hex')}`, expected)
    }),
    { numRuns: 100 },
  )
})

test('Arc’s domains are those of the deployed contracts', () => {
  const gateway = (chainId: number, contract: string) =>
    domainSeparator({
      name: 'GatewayWalletBatched',
      version: '1',
      chainId,
      verifyingContract: parseAddress(contract)!,
    })
  const usdc = (chainId: number) =>
    domainSeparator({
      name: 'USDC',
      version: '2',
      chainId,
      verifyingContract: parseAddress('0x3600000000000000000000000000000000000000')!,
    })
  assert.deepEqual(
    [
      gateway(5042, '0x77777777Dcc4d5A8B6E418Fd04D8997ef11000eE'),
      gateway(5042002, '0x0077777d7EBA4688BDeF3E311b846F25870A19B9'),
      usdc(5042),
      usdc(5042002),
    ],
    [
      '0x6ebe3f3a24dc29e681ffa696ff381e999d3787bc9c537a2eeef7ab9c5b424b84',
      '0x777f1a7bd2dd4cb786270c436ca4c6349f27d20cf59769780fe13355920306f0',
      '0x940506929bba468048a19b567f4f0d534714bc06604b5c3017e5d16785ccdf84',
      '0x361191522483d32a83e70ae7183b4b9629442c13a78bc9921d6f707911c8c6b0',
    ],
  )
})

test('a number that has no word is never signed as another one', () => {
  const domain = domainSeparator({ name: 'x', version: '1' })
  const from = parseAddress(`0x${'1'.repeat(40)}`)!
  const message = { from, to: from, value: 1n, validAfter: 0, validBefore: 1, nonce: `0x${'0'.repeat(64)}` as Hex }
  for (const wrong of [
    { value: -1n },
    { value: 2n ** 256n },
    { validAfter: -1 },
    { validAfter: 1.5 },
    { validBefore: 1e300 },
  ]) {
    assert.throws(() => transferDigest(domain, 'TransferWithAuthorization', { ...message, ...wrong }), RangeError)
  }
})
