import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { charge, openLedger, openPayer, place, settle } from '../../test/support/ledger.ts'
import { testDatabase } from '../../test/support/postgres.ts'
import type { Hold } from '../ledger/hold-calls.ts'
import { type Month, monthOf, startOfMonth } from '../ledger/month.ts'
import { writeMonth } from '../ledger/month-file.ts'
import { listProvenPayments } from '../ledger/payments.ts'
import { createRequestId } from '../ledger/request-id.ts'
import { dropMonth, readMonthRows, sealMonth } from '../ledger/seal-month.ts'
import { findSealedMonth } from '../ledger/sealed-months.ts'
import type { Address } from '../signer/address.ts'
import { findReceipt } from './find-receipt.ts'
import { computeRoots, hashEntries, type PaymentRoot } from './payment-receipt.ts'
import { openReceiptRows } from './receipt-rows.ts'

const address = `0x${'ab'.repeat(20)}` as const
const terms = { chainId: 31_337, gatewayWallet: `0x${'cd'.repeat(20)}` as Address }
const now = new Date()
const monthAgo = (count: number): Month =>
  monthOf(new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - count, 1)))

test('a request that was paid together with archived ones keeps its receipt, and a bundle begins behind their payment', async (t) => {
  const { database, drop } = await testDatabase()
  atEnd(t, drop)
  const holds = await openLedger(database)
  const payer = await openPayer(database, 10_000n)
  await database.query('update accounts set address = $2 where id = $1', [payer.accountId, address])
  const [archived, , kept] = await Promise.all(
    [2, 2, 1].map(async (count) => {
      const id = createRequestId(payer.partition, startOfMonth(monthAgo(count)).getTime())
      const { hold } = (await place(holds, payer, 100n, id)) as { hold: Hold }
      await holds.end(charge(hold, 90n))
      return id
    }),
  )
  await settle(database, [payer], 'completed')
  const [proven] = await listProvenPayments(database, payer, 1n, 1)
  const roots = await computeRoots(database, [proven!.payment], terms)
  const { root } = roots.get(proven!.payment) as PaymentRoot
  await database.query('update payments set root = $1, signature = $2', [
    Buffer.from(root.slice(2), 'hex'),
    randomBytes(65),
  ])
  const parts = { database, terms, issuer: address as Address }
  const before = await findReceipt(parts, kept!)
  assert.ok(before)

  const month = monthAgo(2)
  await sealMonth(database, month, (payment) => hashEntries(database, payment, terms))
  let text = ''
  for await (const chunk of writeMonth(month, readMonthRows(database, month))) text += chunk
  const sealed = (await findSealedMonth(database, month))!
  assert.ok(text.includes(sealed.root.toString('hex')))
  await dropMonth(database, { month, requests: 2, charged: 180n, root: sealed.root.toString('hex') })

  assert.deepEqual(await findReceipt(parts, kept!), before)
  await assert.rejects(findReceipt(parts, archived!), { code: 'request_archived' })
  const { header, items } = (await openReceiptRows(parts, payer))!
  assert.deepEqual(header.after, { number: 1n, last: 3n, root })
  assert.deepEqual(await Array.fromAsync(items), [])
})
