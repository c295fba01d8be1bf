import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { createRequestId, formatRequestId } from '../../src/ledger/request-id.ts'
import { RequestArchivedError } from '../../src/ledger/sealed-months.ts'
import { writeBundle } from '../../src/receipts/bundle.ts'
import { keccak256 } from '../../src/signer/keccak.ts'
import { atEnd } from '../support/at-end.ts'
import { documentOf, everyKind, historyOf, issuer, pay, settleInBatch } from '../support/receipts.ts'
import { dashboardSuite } from './dashboard.ts'

// Receipts of every kind, in the reader's browser. The documents are made here: a service has them all only after days.

const dashboard = dashboardSuite()
const entries = everyKind()
const payment = settleInBatch(pay(entries))
const address = 'req_00000000000000000000000000000001'
const archived = createRequestId(0, Date.UTC(2026, 0, 15))

/** A browser to which the service says that it signs receipts as the given issuer; left out, it has none. */
async function openWithIssuer(own?: string): Promise<Page> {
  const page = await dashboard.open()
  const json = { ok: false, checked_at: null, block: null, ...(own !== undefined && { issuer: own }) }
  await page.route('**/api/solvency', (route) => route.fulfill({ json }))
  return page
}

/** A page that shows this document. */
async function open(document: object): Promise<Page> {
  const page = await openWithIssuer(issuer)
  await page.route('**/api/receipts/*', (route) => route.fulfill({ json: document }))
  await page.goto(`${dashboard.origin}/r/${address}`)
  return page
}

test('every kind of receipt is verified in the browser', async () => {
  const page = await openWithIssuer(issuer)
  for (const entry of entries) {
    const document = documentOf(entry, { payment, entries })
    await page.route('**/api/receipts/*', (route) => route.fulfill({ json: { id: entry.request, ...document } }))
    await page.goto(`${dashboard.origin}/r/${address}`)
    await page.locator('[data-testid=checks][data-ok=true]').waitFor()
    await page.getByText(entry.amount < 0n ? 'Refunded' : 'Charged', { exact: true }).waitFor()
    await page.getByText(`Receipt no. ${entry.number} for this payer`).waitFor()
    await page.unroute('**/api/receipts/*')
  }
})

test('a receipt that waits for its payment or for the chain says so', async () => {
  const unsigned = await open(documentOf(entries[0]!))
  await unsigned.getByText('This receipt is not signed yet').waitFor()
  await unsigned.locator('[data-testid=checks][data-verdict=pending]').waitFor()
  const { batch: _, ...submitted } = payment
  const waiting = await open(documentOf(entries[0]!, { payment: submitted, entries }))
  await waiting.getByText('This receipt is genuine').waitFor()
  await waiting.locator('[data-testid=check-inclusion][data-pending=true]').waitFor()
})

test('the receipt of an archived request says that it is archived, and a file can still be verified there', async () => {
  const page = await openWithIssuer(issuer)
  const { code, message } = new RequestArchivedError(archived, new Date('2026-02-01T00:00:00Z'))
  await page.route('**/api/receipts/*', (route) => route.fulfill({ status: 410, json: { error: { code, message } } }))
  await page.goto(`${dashboard.origin}/r/${formatRequestId(archived)}`)
  await page.getByText('The requests of 2026-01 are archived').waitFor()
  const receipt = JSON.stringify(documentOf(entries[0]!, { payment, entries }))
  const file = { name: 'receipt.json', mimeType: 'application/json', buffer: Buffer.from(receipt) }
  await page.locator('input[type=file]').setInputFiles(file)
  await page.getByText('This receipt is genuine').waitFor()
})

test('a waiting page follows the receipt to the chain automatically', async () => {
  const page = await openWithIssuer(issuer)
  let answers = 0
  await page.route('**/api/receipts/*', (route) => {
    answers += 1
    const paid = answers === 1 ? undefined : { payment, entries }
    return route.fulfill({ json: documentOf(entries[0]!, paid) })
  })
  await page.goto(`${dashboard.origin}/r/${address}`)
  await page.getByText('This receipt is not signed yet').waitFor()
  await page.getByText('This receipt is genuine').waitFor()
})

// Anybody can sign a consistent file with a key of their own, and show it verified under this service's name.
test('a file that another issuer signed is not called genuine, nor is one while the issuer is unknown', async () => {
  const receipt = JSON.stringify(documentOf(entries[0]!, { payment, entries }))
  const { header, items } = historyOf(entries, [3, 2])
  const bundle = (await Array.fromAsync(writeBundle(header, items, keccak256))).join('')
  const verify = async (own: string | undefined, name: string, text: string) => {
    const page = await openWithIssuer(own)
    await page.goto(`${dashboard.origin}/r/${address}`)
    await page
      .locator('input[type=file]')
      .setInputFiles({ name, mimeType: 'application/json', buffer: Buffer.from(text) })
    await page.getByTestId('check-issuer').waitFor()
    const words = await page.getByTestId('checks').getByRole('status').textContent()
    await page.close()
    return words
  }
  const other = `0x${'99'.repeat(20)}`
  assert.equal(await verify(other, 'receipt.json', receipt), 'This service did not issue this receipt')
  assert.equal(await verify(other, 'receipts.jsonl', bundle), 'This service did not issue these receipts')
  const unchecked = 'This receipt is consistent; its issuer was not checked'
  assert.equal(await verify(undefined, 'receipt.json', receipt), unchecked)
  assert.equal(await verify(issuer, 'receipt.json', receipt), 'This receipt is genuine')
})

test('a changed field is named, and an invalid receipt is refused in one line', async () => {
  const document = documentOf(entries[0]!, { payment, entries })
  const changed = await open({ ...document, entry: { ...document.entry, model: 'another' } })
  await changed.getByText('This receipt is not genuine').waitFor()
  await changed.locator('[data-testid=check-hash][data-ok=false]').waitFor()
  await changed.locator('[data-testid=check-payment][data-ok=false]').waitFor()
  const signed = await open({ ...document, payment: { ...document.payment, value_atomic: '1' } })
  await signed.locator('[data-testid=check-signature][data-ok=false]').waitFor()
  const hostile = await open({ ...document, entry: { ...document.entry, created_at_ms: '9'.repeat(18) } })
  await hostile.getByText('Invalid receipt: "created_at_ms" is out of range.').waitFor()
})

test('a receipt or an account’s bundle is verified from a file, and a missing payment is found', async (context) => {
  const page = await open(documentOf(entries[0]!, { payment, entries }))
  await page.locator('[data-testid=checks][data-ok=true]').waitFor()
  const { header, items } = historyOf(entries, [3, 2])
  const bundle = (await Array.fromAsync(writeBundle(header, items, keccak256))).join('')
  const choose = (name: string, text: string) =>
    page.locator('input[type=file]').setInputFiles({ name, mimeType: 'application/json', buffer: Buffer.from(text) })
  await choose('receipts.jsonl', bundle)
  await page.getByText('This account’s receipts are genuine').waitFor()
  await page.getByText('7, 2 of them not paid yet').waitFor()
  await choose('short.jsonl', bundle.split('\n').toSpliced(1, 4).join('\n'))
  await page.locator('[data-testid=check-payments][data-ok=false]').waitFor()
  await choose('receipt.json', JSON.stringify(documentOf(entries[5]!, { payment, entries })))
  await page.getByText('This receipt is genuine').waitFor()
  await choose('hostile.json', `${'['.repeat(50_000)}${']'.repeat(50_000)}`)
  await page
    .getByRole('alert')
    .getByText(/^Invalid receipt: /)
    .waitFor()
  assert.equal(await page.getByText('This receipt is genuine').count(), 0, 'the verdict on another file is gone')

  const folder = mkdtempSync(join(tmpdir(), 'penny-receipt-'))
  atEnd(context, () => rmSync(folder, { recursive: true }))
  const path = join(folder, 'receipt.json')
  for (const [receipt, verdict] of [
    [documentOf(entries[5]!, { payment, entries }), 'This receipt is genuine'],
    [documentOf(entries[5]!), 'This receipt is not signed yet'],
  ] as const) {
    writeFileSync(path, JSON.stringify(receipt))
    const [chooser] = await Promise.all([
      page.waitForEvent('filechooser'),
      page.getByText('Verify a receipt file').click(),
    ])
    await chooser.setFiles(path)
    await page.getByText(verdict).waitFor()
  }
})
