import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertBooksBalance } from '../../test/support/audit.ts'
import { charge, hold, openLedger, openPayer, voided } from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { createRequestId } from './request-id.ts'
import { forgetRefusals } from './requests.ts'

const ledger = ledgerSuite()

test('old refusals are deleted, young ones and everything with money stay, and the books balance', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 1_000n)
  const refuse = () => {
    const requestId = createRequestId(payer.partition, Date.now())
    holds.refuse({ requestId, payer, model: 'm', stream: false, maxTokens: 1, errorCode: 'invalid_value' })
    return requestId
  }
  const old = refuse()
  const young = refuse()
  const open = await hold(holds, payer, 500n)
  const paid = await hold(holds, payer, 100n)
  await holds.end(charge(paid, 50n))
  await holds.drained()
  await ledger.database.query(
    `update requests set created_at = created_at - interval '31 days' where id = any ($1::uuid[])`,
    [[old, open.requestId, paid.requestId]],
  )
  await forgetRefusals(ledger.database, 30)
  const left = await ledger.database.query<{ id: string }>('select id from requests where account_id = $1', [
    payer.accountId,
  ])
  const ids = left.map(({ id }) => id)
  assert.deepEqual(ids.toSorted(), [young, open.requestId, paid.requestId].toSorted())
  await assertBooksBalance(ledger.database)
  await holds.end(voided(open))
})
