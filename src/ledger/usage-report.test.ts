import assert from 'node:assert/strict'
import { test } from 'node:test'
import { charge, hold, openLedger, openPayer } from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { reportUsage } from './usage-report.ts'

const ledger = ledgerSuite()

test('accounts and keys of the same name have lines of their own', async () => {
  const { database } = ledger
  const holds = await openLedger(database)
  const payers = [await openPayer(database, 1_000n), await openPayer(database, 1_000n)]
  for (const payer of payers) await holds.end(charge(await hold(holds, payer, 10n), 10n))
  const names = await database.query<{ name: string }>('select distinct name from accounts')
  assert.equal(names.length, 1, 'both accounts have one name')
  await database.query(`update api_keys set name = 'same', hint = 'penny_…same'`)
  const report = async (group: 'account' | 'key') => {
    const lines = await reportUsage(database, { groups: [group], days: 2, accountId: undefined })
    return lines.map((line) => [line.group[`${group}_id`], line.requests, line.charged])
  }
  const linesOf = (ids: readonly string[]) => ids.toSorted().map((id) => [id, 1, 10n])
  assert.deepEqual(await report('account'), linesOf(payers.map(({ accountId }) => accountId)))
  assert.deepEqual(await report('key'), linesOf(payers.map(({ keyId }) => keyId)))
})

test('a report of more lines than it may have is refused, not cut', async () => {
  const { database } = ledger
  const { partition, accountId, keyId } = await openPayer(database, 0n)
  const addModels = (count: number, prefix: string) =>
    database.query(
      `insert into usage_hours (partition, account_id, hour, key_id, model)
       select $1, $2, date_trunc('hour', now(), 'UTC'), $3, $5 || n from generate_series(1, $4) n`,
      [partition, accountId, keyId, count, prefix],
    )
  const report = () => reportUsage(database, { groups: ['model'], days: 1, accountId })
  await addModels(10_000, 'model-')
  assert.equal((await report()).length, 10_000)
  await addModels(1, 'other-')
  await assert.rejects(report, /The report has more than 10000 lines\. Ask for fewer days/)
})
