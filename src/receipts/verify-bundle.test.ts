import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { entryOf, everyKind, historyOf, issuer, pay, payer, sign } from '../../test/support/receipts.ts'
import { keccak256 } from '../signer/keccak.ts'
import { receiptCrypto } from '../signer/receipt-crypto.ts'
import { type BundleItem, writeBundle } from './bundle.ts'
import type { Batch } from './payment.ts'
import { InvalidReceiptError } from './read-fields.ts'
import { type BundleOptions, type BundleReport, verifyBundle } from './verify-bundle.ts'
import { viemCrypto } from './viem-crypto.ts'

const { header, payments, items } = historyOf([...everyKind(1n), ...everyKind(8n)], [5, 1, 6])

async function textOf(rows: readonly BundleItem[] = items): Promise<string> {
  return (await Array.fromAsync(writeBundle(header, rows, keccak256))).join('')
}

async function* chunksOf(text: string, size = 1_000): AsyncGenerator<Uint8Array> {
  const bytes = new TextEncoder().encode(text)
  for (let start = 0; start < bytes.length; start += size) yield bytes.subarray(start, start + size)
}

function verify(text: string, options: Partial<BundleOptions> = {}): Promise<BundleReport> {
  return verifyBundle(chunksOf(text), { crypto: receiptCrypto, ...options })
}

/** The checks that failed; the error's name when the file is no bundle. */
async function findingsOf(text: string): Promise<readonly string[]> {
  try {
    const { checks } = await verify(text)
    return checks.filter(({ ok }) => !ok).map(({ name }) => name)
  } catch (error) {
    assert.ok(error instanceof InvalidReceiptError, String(error))
    return ['invalid']
  }
}

async function assertFound(text: string, ...expected: string[]): Promise<void> {
  assert.deepEqual(await findingsOf(text), expected)
}

const bundle = await textOf()
const lines = bundle.trimEnd().split('\n')

/** The bundle with its lines changed. */
function edited(edit: (lines: string[]) => string[]): string {
  return `${edit([...lines]).join('\n')}\n`
}

const paymentLines = lines.flatMap((line, index) => (line.includes('"object":"payment"') ? [index] : []))

test('the bundle of an account verifies offline, in Node and in a browser, in chunks of any size', async () => {
  for (const crypto of [receiptCrypto, viemCrypto]) {
    const { totals, checks, header: found } = await verify(bundle, { crypto })
    assert.deepEqual(
      checks.filter(({ ok }) => !ok),
      [],
    )
    assert.deepEqual(found, header)
    const paid = payments.reduce((sum, { value }) => sum + value, 0n)
    assert.deepEqual(totals, { entries: 14n, payments: 3n, batched: 3n, waiting: 0n, unpaid: 2n, paid })
  }
  for (const size of [1, 7, 100_000]) {
    const { checks } = await verifyBundle(chunksOf(bundle, size), { crypto: receiptCrypto })
    assert.ok(checks.every(({ ok }) => ok))
  }
})

test('unpaid entries and the numbers of failed payments are allowed and reported', async () => {
  const { checks } = await verify(bundle)
  const unpaid = checks.find(({ name }) => name === 'unpaid')!
  assert.deepEqual([unpaid.ok, unpaid.pending], [true, true])
  assert.match(unpaid.detail, /2 entries at the end are not paid yet/)
  assert.match(checks.find(({ name }) => name === 'payments')!.detail, /Unused payment numbers: 1 /)
})

test('pending payments and payments without a transfer are distinguished', async () => {
  const [void1, void2, charged] = [entryOf(1n, { amount: 0n }), entryOf(2n, { amount: 0n }), entryOf(3n)] as const
  const free = pay([void1, void2])
  const waiting = pay([charged], free.root, { number: 2n })
  const rows = [{ payment: free }, { entry: void1 }, { entry: void2 }, { payment: waiting }, { entry: charged }]
  const { checks, totals } = await verify(await textOf(rows))
  assert.deepEqual([totals.batched, totals.waiting], [0n, 1n])
  const inclusion = checks.find(({ name }) => name === 'inclusion')!
  assert.deepEqual([inclusion.ok, inclusion.pending], [true, true])
  assert.match(inclusion.detail, /1 not on chain yet\. 1 add up to zero and need no transfer\./)
})

test('an account without payments or without entries has a bundle too', async () => {
  for (const rows of [[], everyKind().map((entry) => ({ entry }))]) {
    const { checks, totals } = await verify(await textOf(rows))
    assert.ok(checks.every(({ ok }) => ok))
    assert.equal(totals.unpaid, BigInt(rows.length))
    assert.ok(checks.find(({ name }) => name === 'signatures')!.pending)
  }
})

test('an entry that was left out, repeated or moved is found', async () => {
  const first = paymentLines[0]!
  await assertFound(
    edited((all) => all.toSpliced(first + 3, 1)),
    'entries',
    'end',
  )
  await assertFound(
    edited((all) => all.toSpliced(first + 1, 1)),
    'entries',
    'end',
  )
  // The last entry of a payment, the first unpaid one, the last unpaid one.
  await assertFound(
    edited((all) => all.toSpliced(paymentLines[1]! - 1, 1)),
    'entries',
    'end',
  )
  await assertFound(
    edited((all) => all.toSpliced(-3, 1)),
    'entries',
    'end',
  )
  await assertFound(
    edited((all) => all.toSpliced(-2, 1)),
    'unpaid',
    'end',
  )
  assert.ok((await findingsOf(edited((all) => all.toSpliced(first + 3, 0, all[first + 3]!)))).includes('entries'))
  const swapped = edited((all) => all.toSpliced(first + 2, 2, all[first + 3]!, all[first + 2]!))
  assert.deepEqual(await findingsOf(swapped), ['entries', 'payments'])
})

test('a missing payment is found, at any position, even if counts and numbers were adjusted', async () => {
  for (const [index, start] of paymentLines.entries()) {
    const end = paymentLines[index + 1] ?? lines.length - 3
    const found = await findingsOf(edited((all) => all.toSpliced(start, end - start)))
    assert.ok(found.includes('payments') || found.includes('entries'), `payment ${index}`)
  }
  const withoutMiddle = items.filter(
    (item) => !('payment' in item ? item.payment === payments[1] : item.entry.number === 6n),
  )
  assert.deepEqual(await findingsOf(await textOf(withoutMiddle)), ['payments'])
  // Renumbered and signed anew by the issuer himself: the chain of roots still tells.
  const renumbered = historyOf([...everyKind(1n), ...everyKind(8n)], [5, 1, 6])
  const forged = sign({ ...payments[2]!, previous: payments[1]!.root, first: 6n, last: 11n })
  const rows = renumbered.items.flatMap((item): BundleItem[] => {
    if ('payment' in item)
      return item.payment.number === 3n ? [] : [item.payment.number === 4n ? { payment: forged } : item]
    if (item.entry.number === 6n) return []
    return [{ entry: item.entry.number > 6n ? { ...item.entry, number: item.entry.number - 1n } : item.entry }]
  })
  assert.ok((await findingsOf(await textOf(rows))).includes('payments'))
})

test('payments in another order are found', async () => {
  const [first, second, third] = paymentLines as [number, number, number]
  const reordered = edited((all) => [
    ...all.slice(0, first),
    ...all.slice(second, third),
    ...all.slice(first, second),
    ...all.slice(third),
  ])
  assert.ok((await findingsOf(reordered)).includes('payments'))
})

test('a truncated file is detected, at any byte', async () => {
  const bytes = new TextEncoder().encode(bundle)
  await fc.assert(
    fc.asyncProperty(fc.nat(bytes.length - 2), async (length) => {
      const text = new TextDecoder().decode(bytes.subarray(0, length))
      const found = await findingsOf(text)
      assert.ok(found.includes('end') || found.includes('invalid'), `${length} bytes`)
    }),
  )
  // Cut between two lines, it says so.
  const { checks } = await verify(edited((all) => all.slice(0, -1)))
  assert.match(checks.find(({ name }) => name === 'end')!.detail, /cut off/)
})

/** The way to every value of a line. */
function waysInto(value: unknown, way: readonly string[] = []): (readonly string[])[] {
  if (typeof value !== 'object' || value === null) return [way]
  return Object.entries(value).flatMap(([name, part]) => waysInto(part, [...way, name]))
}

const onlyOnChain = ['batch.id', 'batch.tx_hash']

test('every changed field of every line is found', async () => {
  for (const [index, line] of lines.entries()) {
    const value = JSON.parse(line)
    for (const way of waysInto(value)) {
      if (onlyOnChain.includes(way.join('.'))) continue
      const copy = structuredClone(value)
      const parent = way.slice(0, -1).reduce((part, name) => part[name], copy)
      parent[way.at(-1)!] = otherValue(parent[way.at(-1)!])
      const text = edited((all) => all.with(index, JSON.stringify(copy)))
      assert.notDeepEqual(await findingsOf(text), [], `line ${index + 1}: ${way.join('.')}`)
    }
  }
})

function otherValue(value: unknown): unknown {
  if (typeof value === 'number') return value + 1
  const text = String(value)
  if (/^0x/.test(text)) return `${text.slice(0, -1)}${text.endsWith('0') ? '1' : '0'}`
  return /^-?\d+$/.test(text) ? String(BigInt(text) + 1n) : `${text}x`
}

test('a wrong sum, a wrong root and a foreign signature are each reported by name', async () => {
  const entries = everyKind(1n)
  const honest = pay(entries)
  const rows = (payment: typeof honest): BundleItem[] => [{ payment }, ...entries.map((entry) => ({ entry }))]
  const wrongSum = sign({ ...honest, value: honest.value + 1n })
  assert.deepEqual(await findingsOf(await textOf(rows(wrongSum))), ['amounts'])
  const wrongRoot = sign({ ...honest, root: `0x${'12'.repeat(32)}` })
  assert.deepEqual(await findingsOf(await textOf(rows(wrongRoot))), ['payments'])
  const wrongSigner = { ...honest, signature: sign({ ...honest, number: 9n }).signature }
  assert.deepEqual(await findingsOf(await textOf(rows(wrongSigner))), ['signatures'])
})

test('each payment is looked up on the chain once, and a missing one is reported', async () => {
  const asked: Batch[] = []
  const missing = payments[2]!.batch!.id
  const { checks } = await verify(bundle, {
    checkPayment: async ({ batch }, { domain }) => {
      assert.deepEqual(domain, header.domain)
      asked.push(batch)
      return batch.id === missing ? `Batch ${batch.id} is not on the chain.` : undefined
    },
  })
  assert.deepEqual(
    asked.map(({ id }) => id),
    payments.map(({ batch }) => batch!.id),
  )
  const chain = checks.find(({ name }) => name === 'chain')!
  assert.deepEqual([chain.ok, chain.detail], [false, `Batch ${missing} is not on the chain.`])
})

test('an invalid bundle is refused with the number of the wrong line', async () => {
  const [head, payment] = lines as [string, string]
  const hostile: readonly (readonly [text: string, reason: RegExp])[] = [
    ['', /empty/],
    ['\n', /line 1: it is not JSON/],
    ['null\n', /line 1/],
    ['[]\n', /line 1/],
    [`${payment}\n`, /line 1/],
    [`${head.replace('"version":2', '"version":3')}\n`, /line 1.*version/],
    [`${head}\n${head}\n`, /line 2/],
    [`${head}\n\n`, /line 2/],
    [`${head}\n{"object":"__proto__"}\n`, /line 2/],
    [`${head}\n{"object":"entry"}\n`, /line 2/],
    [`${head}\n${'x'.repeat(70_000)}`, /line 2 is longer than/],
    [`${bundle}${head}\n`, /comes after the end/],
  ]
  for (const [text, reason] of hostile) {
    await assert.rejects(
      verify(text),
      (error) => error instanceof InvalidReceiptError && reason.test(error.message),
      text.slice(0, 60),
    )
  }
  const binary = (async function* () {
    yield Uint8Array.of(0xff, 0xfe, 0x0a)
  })()
  await assert.rejects(verifyBundle(binary, { crypto: receiptCrypto }), InvalidReceiptError)
})

// Millions of entries must not need more memory than a few.
test('a bundle is written and verified as a stream: nothing is kept but what the next line needs', async () => {
  const count = 20_000
  let made = 0
  const rows = (async function* (): AsyncGenerator<BundleItem> {
    let previous = pay([entryOf(1n)]).previous
    for (let start = 0; start < count; start += 1_000) {
      const entries = Array.from({ length: 1_000 }, (_, index) => entryOf(BigInt(start + index + 1)))
      const payment = pay(entries, previous, { number: BigInt(start / 1_000 + 1) })
      previous = payment.root
      yield { payment }
      for (const entry of entries) {
        made += 1
        yield { entry }
      }
    }
  })()
  let behindMax = 0
  let verified = 0
  const chunks = (async function* () {
    for await (const text of writeBundle(header, rows, keccak256)) {
      behindMax = Math.max(behindMax, made - verified)
      yield new TextEncoder().encode(text)
    }
  })()
  const { totals, checks } = await verifyBundle(chunks, {
    crypto: receiptCrypto,
    onProgress: ({ entries }) => (verified = Number(entries)),
  })
  assert.ok(checks.every(({ ok }) => ok))
  assert.equal(totals.entries, BigInt(count))
  assert.ok(behindMax <= 512, `${behindMax} entries were written ahead`)
})

test('the header names payer and issuer, and every entry and payment is theirs', async () => {
  for (const [from, to] of [
    [payer, issuer],
    [issuer, payer],
  ] as const) {
    const found = await findingsOf(edited((all) => all.with(0, all[0]!.replace(from, to))))
    assert.ok(found.includes('signatures'))
  }
})
