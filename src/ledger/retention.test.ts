import assert from 'node:assert/strict'
import { test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { assertBooksBalance } from '../../test/support/audit.ts'
import { charge, hold, holdCall, openLedger, openPayer, voided } from '../../test/support/ledger.ts'
import { testDatabase } from '../../test/support/postgres.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import type { Hold } from './hold-calls.ts'
import { createRequestId } from './request-id.ts'
import { createRequestMonths, findRequest, forgetRefusals } from './requests.ts'

const ledger = ledgerSuite()

test('old refusals are deleted, recent ones and everything with money stay, and the ledger balances', async () => {
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
  const monthAgo = new Date(Date.now() - 31 * 86_400_000)
  await ledger.database.query('update holds set created_at = $2 where id = $1', [open.requestId, monthAgo])
  await ledger.database.query('update requests set created_at = $2 where id = any ($1::uuid[])', [
    [old, paid.requestId],
    monthAgo,
  ])
  await forgetRefusals(ledger.database, 30)
  const left = await ledger.database.query<{ id: string }>('select id from request_log where account_id = $1', [
    payer.accountId,
  ])
  const ids = left.map(({ id }) => id)
  assert.deepEqual(ids.toSorted(), [young, open.requestId, paid.requestId].toSorted())
  await assertBooksBalance(ledger.database)
  await holds.end(voided(open))
})

test('a request is stored with its month, also one with another timestamp', async (t) => {
  const { database, drop } = await testDatabase()
  atEnd(t, drop)
  await createRequestMonths(database)
  await createRequestMonths(database)
  const holds = await openLedger(database)
  const payer = await openPayer(database, 10_000n)
  const times = [Date.now(), Date.now() + 30 * 86_400_000, Date.UTC(2020, 1, 1)]
  const ids = times.map((time) => createRequestId(payer.partition, time))
  for (const id of ids) {
    const call = holdCall(payer, 100n, id)
    const decision = await holds.place(call)
    await holds.end(charge((decision as { hold: Hold }).hold, 50n))
    // Said again, a hold and an end are found wherever they are kept.
    await assert.rejects(holds.place(call), { code: 'overloaded' })
    assert.equal((await findRequest(database, payer.partition, payer.accountId, id))?.charged, 50n)
  }
  const kept = await database.query<{ month: string }>(
    'select tableoid::regclass::text as month from requests where id = any ($1::uuid[]) order by id',
    [ids],
  )
  assert.deepEqual(
    // On a cluster the name of the shard.
    kept.map(({ month }) => month.replace(/(?<=requests_\w+)_\d{5,}$/, '').replace(/\d{4}_\d\d/, 'month')),
    ['requests_other', 'requests_month', 'requests_month'],
  )
  await assertBooksBalance(database)
})
