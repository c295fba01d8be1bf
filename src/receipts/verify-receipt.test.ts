import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import {
  documentOf,
  domain,
  entryOf,
  everyKind,
  hashesOf,
  pay,
  payer,
  settleInBatch,
  sign,
} from '../../test/support/receipts.ts'
import { keccak256 } from '../signer/keccak.ts'
import { receiptCrypto } from '../signer/receipt-crypto.ts'
import type { Entry } from './entry.ts'
import { zeroHash } from './hex.ts'
import { paymentEntriesMax } from './payment.ts'
import { PaymentTree } from './payment-tree.ts'
import { InvalidReceiptError } from './read-fields.ts'
import { issueReceipt, type ReceiptDocument, readReceipt, writeReceipt } from './receipt.ts'
import { type ReceiptCheck, verifyReceipt } from './verify-receipt.ts'
import { viemCrypto } from './viem-crypto.ts'

const entries = everyKind(5n)
const previous = keccak256('the payment before').toString('hex')
const payment = settleInBatch(pay(entries, `0x${previous}`, { number: 3n }))
const settled = documentOf(entries[0]!, { payment, entries })

/** The checks by name: passed, pending or failed. */
async function resultsOf(document: unknown, crypto = receiptCrypto): Promise<Record<string, string>> {
  const checks = await verifyReceipt(document, crypto)
  return Object.fromEntries(checks.map((check) => [check.name, resultOf(check)]))
}

function resultOf({ ok, pending }: ReceiptCheck): string {
  if (pending) return 'pending'
  return ok ? 'passed' : 'failed'
}

const allPassed = { hash: 'passed', signature: 'passed', amounts: 'passed', payment: 'passed', inclusion: 'passed' }

test('a receipt of every kind verifies, in Node and in a browser: charged, from credit, voided, debt, refund, adjustment, recovery', async () => {
  for (const entry of entries) {
    const document = documentOf(entry, { payment, entries })
    for (const crypto of [receiptCrypto, viemCrypto]) assert.deepEqual(await resultsOf(document, crypto), allPassed)
    // As it comes out of a file, and with the id that the API adds.
    assert.deepEqual(await resultsOf(JSON.parse(JSON.stringify(document, null, 2))), allPassed)
    assert.deepEqual(await resultsOf({ id: entry.request, ...document }), allPassed)
    assert.deepEqual(writeReceipt(readReceipt(document)), document)
  }
})

test('a payment of the most entries, of one entry, and one that pays the customer verify', async () => {
  const many = Array.from({ length: paymentEntriesMax }, (_, index) => entryOf(BigInt(index + 1)))
  const paid = { payment: settleInBatch(pay(many)), entries: many }
  for (const place of [0, 1, paymentEntriesMax / 2 - 1, paymentEntriesMax - 1]) {
    assert.deepEqual(await resultsOf(documentOf(many[place]!, paid)), allPassed)
  }
  for (const single of [entries[0]!, entries[4]!]) {
    const document = documentOf(single, { payment: settleInBatch(pay([single])), entries: [single] })
    assert.deepEqual(await resultsOf(document), allPassed)
  }
})

test('a receipt that waits for its payment or for the chain says so, and is neither proved nor wrong', async () => {
  const unpaid = await verifyReceipt(documentOf(entries[0]!), receiptCrypto)
  assert.deepEqual(unpaid.map(resultOf), ['passed', 'pending', 'passed', 'pending', 'pending'])
  assert.match(unpaid[1]!.detail, /Not signed yet/)
  const { batch, ...submitted } = payment
  assert.ok(batch)
  const document = documentOf(entries[0]!, { payment: submitted, entries })
  assert.deepEqual(await resultsOf(document), { ...allPassed, inclusion: 'pending' })
})

test('a payment whose charges and refunds cancel out is proved without a batch', async () => {
  const cancelled = [entryOf(1n), everyKind(1n)[4]!].map((entry, index) => ({ ...entry, number: BigInt(index + 1) }))
  const nothing = pay(cancelled)
  assert.equal(nothing.value, 0n)
  assert.deepEqual(await resultsOf(documentOf(cancelled[0]!, { payment: nothing, entries: cancelled })), allPassed)
})

/** The way to every value in a document. */
function waysInto(value: unknown, way: readonly string[] = []): (readonly string[])[] {
  if (typeof value !== 'object' || value === null) return [way]
  return Object.entries(value).flatMap(([name, part]) => waysInto(part, [...way, name]))
}

function changed(document: object, way: readonly string[], change: (value: unknown) => unknown): object {
  const copy = structuredClone(document) as Record<string, unknown>
  const parent = way.slice(0, -1).reduce((part, name) => part[name] as Record<string, unknown>, copy)
  const name = way.at(-1)!
  parent[name] = change(parent[name])
  return copy
}

async function isFound(document: unknown): Promise<boolean> {
  try {
    return (await verifyReceipt(document, receiptCrypto)).some(({ ok }) => !ok)
  } catch (error) {
    assert.ok(error instanceof InvalidReceiptError, String(error))
    return true
  }
}

const hexDigits = '0123456789abcdef'

/** Another value of the same form. */
function otherValue(value: unknown, seed: number): unknown {
  if (typeof value === 'number') return value + 1 + seed
  const text = String(value)
  if (/^0x/.test(text)) {
    const place = 2 + (seed % (text.length - 2))
    const digit = hexDigits[(hexDigits.indexOf(text[place]!) + 1 + (seed % 15)) % 16]
    return text.slice(0, place) + digit + text.slice(place + 1)
  }
  if (/^-?\d+$/.test(text)) return String(BigInt(text) + BigInt(1 + (seed % 1_000)))
  const place = seed % (text.length + 1)
  return `${text.slice(0, place)}x${text.slice(place)}`
}

// Where a batch stands on the chain is all that the receipt itself cannot prove: `penny verify --rpc` does.
const onlyOnChain = ['payment.batch.id', 'payment.batch.tx_hash']

test('every field that was changed is found, of every kind of receipt, without any network', async () => {
  const documents = entries.flatMap((entry) => [documentOf(entry, { payment, entries }), documentOf(entry)])
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...documents), fc.nat(), async (document, seed) => {
      for (const way of waysInto(document)) {
        const path = way.join('.')
        if (!onlyOnChain.includes(path)) {
          assert.ok(await isFound(changed(document, way, (value) => otherValue(value, seed))), path)
        }
      }
    }),
    { numRuns: 60 },
  )
})

test('a field that is missing, empty, of another type or unknown makes the receipt invalid', async () => {
  const wrong = [
    undefined,
    null,
    '',
    ' ',
    '0x',
    '-0',
    '01',
    '1e3',
    7,
    -1,
    0.5,
    true,
    [],
    {},
    ['1'],
    'é',
    '\ud800',
    'x'.repeat(2_000),
  ]
  const ways = waysInto(settled)
  assert.equal(ways.length, 37)
  for (const way of ways) {
    for (const value of wrong) {
      const path = way.join('.')
      const mayBe = ['request', 'status', 'model', 'prices'].includes(way.at(-1)!) && typeof value === 'string'
      const document = changed(settled, way, () => value)
      if (mayBe) assert.ok(await isFound(document), `${path} = ${value}`)
      else await assert.rejects(verifyReceipt(document, receiptCrypto), InvalidReceiptError, `${path} = ${value}`)
    }
    const without = changed(settled, way, () => undefined)
    await assert.rejects(verifyReceipt(JSON.parse(JSON.stringify(without)), receiptCrypto), InvalidReceiptError)
  }
  for (const place of [[], ['entry'], ['domain'], ['payment'], ['payment', 'batch']]) {
    for (const name of ['charged', '__proto__', 'constructor', 'toString']) {
      const extra = JSON.parse(`{${JSON.stringify(name)}: "1"}`)
      const added = JSON.parse(JSON.stringify(settled), (_, value) => value)
      const target = place.reduce((part, key) => part[key], added)
      Object.defineProperty(target, name, { ...Object.getOwnPropertyDescriptor(extra, name), enumerable: true })
      await assert.rejects(verifyReceipt(added, receiptCrypto), /unknown field/)
    }
  }
})

test('an invalid receipt is refused in one line that is safe to print', async () => {
  const deep = JSON.parse(`${'['.repeat(50_000)}${']'.repeat(50_000)}`)
  const hostile: unknown[] = [
    undefined,
    null,
    0,
    'receipt',
    [],
    {},
    deep,
    { ...settled, entry: deep },
    { ...settled, object: 'invoice' },
    { ...settled, version: 1 },
    { ...settled, version: '2' },
    { ...settled, id: 'req_other' },
    { ...settled, id: null },
    Object.create(settled),
    { ...settled, entry: Object.create(settled.entry) },
    { ...settled, ['\u001b[2J\u0007'.repeat(1_000)]: 1 },
    { ...settled, payment: { ...settled.payment, proof: Array(5_000).fill(zeroHash) } },
    { ...settled, payment: { ...settled.payment, last: '9000' } },
    { ...settled, payment: { ...settled.payment, first: '9', last: '8' } },
    { ...settled, payment: { ...settled.payment, proof: 'abc' } },
    { ...settled, payment: null },
    { ...settled, payment: { ...settled.payment, batch: null } },
  ]
  for (const value of hostile) {
    await assert.rejects(verifyReceipt(value, receiptCrypto), (error) => {
      assert.ok(error instanceof InvalidReceiptError, String(error))
      // biome-ignore lint/suspicious/noControlCharactersInRegex: the point of it
      assert.doesNotMatch(error.message, /[\u0000-\u001f\u007f]/)
      assert.ok(error.message.length < 200)
      return true
    })
  }
  await fc.assert(
    fc.asyncProperty(fc.jsonValue(), async (value) => {
      await assert.rejects(verifyReceipt(value, receiptCrypto), InvalidReceiptError)
    }),
  )
})

test('amounts that cannot be true are found even when the issuer signed them', async () => {
  const impossible: Partial<Entry>[] = [
    { amount: -1n },
    { status: 'refused', amount: 5n },
    { kind: 'refund', amount: 5n, promptTokens: 0n, completionTokens: 0n, searchCalls: 0n, quote: 0n },
    { kind: 'adjustment', amount: -5n },
  ]
  for (const change of impossible) {
    const lie = entryOf(1n, change)
    const document = documentOf(lie, { payment: pay([lie]), entries: [lie] })
    assert.equal((await resultsOf(document)).amounts, 'failed', JSON.stringify(Object.keys(change)))
  }
  const honest = entryOf(1n)
  const dearer = sign({ ...pay([honest]), value: honest.amount + 1n })
  const document = documentOf(honest, { payment: dearer, entries: [honest] })
  assert.deepEqual(await resultsOf(document), { ...allPassed, amounts: 'failed', inclusion: 'pending' })
})

test('a payment does not prove entries of other accounts, of other chains or outside its range', async () => {
  const foreign = entryOf(5n, { payer: `0x${'11'.repeat(20)}` })
  const smuggled = { ...settled, entry: { ...settled.entry, payer: foreign.payer } }
  assert.equal((await resultsOf(smuggled)).payment, 'failed')
  const elsewhere = { ...settled, domain: { ...settled.domain, chain_id: '1' } }
  const results = await resultsOf(elsewhere)
  assert.deepEqual([results.hash, results.signature, results.payment], ['failed', 'failed', 'failed'])
  const outside = documentOf(entryOf(40n))
  const borrowed = { ...outside, payment: settled.payment }
  assert.equal((await resultsOf(borrowed)).payment, 'failed')
})

test('rows that do not match the root of their payment are never served as a receipt', () => {
  const tampered = entries.map((entry, index) => (index === 2 ? { ...entry, amount: 1n } : entry))
  const tree = new PaymentTree(payment, hashesOf(tampered), keccak256)
  assert.throws(() => issueReceipt(entries[0]!, domain, keccak256, { payment, tree }), new RegExp(payer))
})

// The document's shape is an interface: programs of customers read it.
test('a receipt is written with text for every number, and with the API’s names', () => {
  const document: ReceiptDocument = settled
  assert.deepEqual(Object.keys(document), ['object', 'version', 'entry', 'domain', 'hash', 'payment'])
  assert.deepEqual(document.entry, {
    payer,
    kind: 'request',
    request: 'req_00000000000000000000000000000005',
    status: 'succeeded',
    model: 'gpt-5.6-sol',
    prices: '2026-11-01',
    number: '5',
    created_at_ms: '1794000005000',
    ended_at_ms: '1794000005700',
    prompt_tokens: '120',
    completion_tokens: '45',
    search_calls: '1',
    quote_atomic: '9000',
    from_credit_atomic: '0',
    amount_atomic: '405',
  })
  assert.deepEqual(Object.keys(document.payment!), [
    'payer',
    'number',
    'first',
    'last',
    'value_atomic',
    'nonce',
    'previous',
    'root',
    'signature',
    'batch',
    'issuer',
    'proof',
  ])
})
