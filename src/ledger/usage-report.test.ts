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
