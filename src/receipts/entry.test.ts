import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { domain, entryOf, everyKind, payer } from '../../test/support/receipts.ts'
import { keccak256 } from '../signer/keccak.ts'
import { createEntryHasher, type Entry, encodeEntry, entryKinds, textBytesMax } from './entry.ts'
import { type Hex, toHex } from './hex.ts'
import { viemCrypto } from './viem-crypto.ts'

const uint64 = fc.bigInt(0n, 2n ** 64n - 1n)
const int64 = fc.bigInt(-(2n ** 63n), 2n ** 63n - 1n)
const instant = fc.bigInt(0n, 8_640_000_000_000_000n)
const text = fc.string({ unit: 'grapheme', maxLength: 40 })
const anyEntry: fc.Arbitrary<Entry> = fc.record({
  payer: fc.uint8Array({ minLength: 20, maxLength: 20 }).map((bytes) => toHex(bytes)),
  number: fc.bigInt(1n, 2n ** 64n - 1n),
  kind: fc.constantFrom(...entryKinds),
  request: text,
  createdAt: instant,
  endedAt: instant,
  status: text,
  model: text,
  prices: text,
  promptTokens: uint64,
  completionTokens: uint64,
  searchCalls: uint64,
  quote: uint64,
  fromCredit: int64,
  amount: int64,
})

// What can be read back is unambiguous: no two entries have the same bytes.
test('every entry can be read back from its encoding', () => {
  fc.assert(fc.property(anyEntry, (entry) => assert.deepEqual(decode(encodeEntry(entry)), { ...entry })))
})

// Fixed values: existing receipts must remain valid forever.
test('the encoding and the hash of a known entry never change', () => {
  const entry = entryOf(7n, { fromCredit: -1n, amount: -2n, model: 'é' })
  const fixed = [
    '0201',
    payer.slice(2),
    '0000000000000007',
    '000001a1b2bbaf58',
    '000001a1b2bbb214',
    '0000000000000078',
    '000000000000002d',
    '0000000000000001',
    '0000000000002328',
    'ffffffffffffffff',
    'fffffffffffffffe',
    `0024${Buffer.from('req_00000000000000000000000000000007').toString('hex')}`,
    `0009${Buffer.from('succeeded').toString('hex')}`,
    '0002c3a9',
    `000a${Buffer.from('2026-11-01').toString('hex')}`,
  ].join('')
  assert.equal(toHex(encodeEntry(entry)), `0x${fixed}`)
  const hash = toHex(createEntryHasher(domain, keccak256)(entry))
  assert.equal(hash, '0x4b619244a1e79c8f51e1814acb46209aae00dab4a9ccfc421c2813b3826c7287')
})

test('the hash is the same in Node and in a browser, and differs between chains, gateways and entries', () => {
  const inNode = createEntryHasher(domain, keccak256)
  const inBrowser = createEntryHasher(domain, viemCrypto.keccak256)
  const otherChain = createEntryHasher({ ...domain, chainId: 1n }, keccak256)
  const otherGateway = createEntryHasher({ ...domain, gatewayWallet: `0x${'0'.repeat(40)}` }, keccak256)
  const hashes = everyKind().map((entry) => {
    assert.equal(toHex(inNode(entry)), toHex(inBrowser(entry)))
    return [inNode, otherChain, otherGateway].map((hash) => toHex(hash(entry)))
  })
  assert.equal(new Set(hashes.flat()).size, 3 * everyKind().length)
})

test('an entry that was hashed before does not change the hash of the next one', () => {
  fc.assert(
    fc.property(anyEntry, anyEntry, (one, other) => {
      const hash = createEntryHasher(domain, keccak256)
      const alone = toHex(hash(other))
      hash(one)
      assert.equal(toHex(hash(other)), alone)
    }),
  )
})

test('values without a unique encoding are refused instead of hashed', () => {
  const bad: Partial<Record<keyof Entry, unknown>>[] = [
    { number: 0n },
    { number: 2n ** 64n },
    { amount: 2n ** 63n },
    { fromCredit: -(2n ** 63n) - 1n },
    { quote: -1n },
    { promptTokens: 5 },
    { createdAt: 8_640_000_000_000_001n },
    { kind: 'gift' },
    { model: '\ud800' },
    { model: 'é'.repeat(textBytesMax / 2 + 1) },
    { payer: payer.toUpperCase().replace('X', 'x') },
    { payer: payer.slice(0, -2) },
  ]
  const hash = createEntryHasher(domain, keccak256)
  for (const change of bad)
    assert.throws(() => hash(entryOf(1n, change as Partial<Entry>)), RangeError, String(Object.entries(change)[0]))
  // A refused payer leaves nothing behind.
  assert.equal(toHex(hash(entryOf(1n))), toHex(createEntryHasher(domain, keccak256)(entryOf(1n))))
  assert.doesNotThrow(() => hash(entryOf(1n, { model: 'é'.repeat(textBytesMax / 2) })))
})

/** The table on the documentation's page, read backwards. */
function decode(bytes: Uint8Array): Entry {
  const buffer = Buffer.from(bytes)
  assert.equal(buffer[0], 2)
  let offset = 94
  const texts = Array.from({ length: 4 }, () => {
    const start = offset + 2
    offset = start + buffer.readUInt16BE(offset)
    return buffer.toString('utf8', start, offset)
  })
  assert.equal(offset, buffer.length)
  const [request, status, model, prices] = texts as [string, string, string, string]
  return {
    payer: `0x${buffer.toString('hex', 2, 22)}` as Hex,
    number: buffer.readBigUInt64BE(22),
    kind: entryKinds[buffer[1]! - 1]!,
    request,
    createdAt: buffer.readBigUInt64BE(30),
    endedAt: buffer.readBigUInt64BE(38),
    status,
    model,
    prices,
    promptTokens: buffer.readBigUInt64BE(46),
    completionTokens: buffer.readBigUInt64BE(54),
    searchCalls: buffer.readBigUInt64BE(62),
    quote: buffer.readBigUInt64BE(70),
    fromCredit: buffer.readBigInt64BE(78),
    amount: buffer.readBigInt64BE(86),
  }
}
