import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { charge, codeOf, hold, openLedger, openPayer, place } from '../../test/support/ledger.ts'
import { type TestDatabase, testDatabase } from '../../test/support/postgres.ts'
import type { Violation } from '../ledger/audit.ts'
import { findFreeze, unfreezeLedger } from '../ledger/freeze.ts'
import { Auditor } from './audit-ledger.ts'

let ledger: TestDatabase
before(async () => {
  ledger = await testDatabase()
})
after(() => ledger.drop())

const farFuture = 'ffffffff-ffff-4fff-bfff-ffffffffffff'

// Accounts beyond the first page were skipped until the hourly audit: 2,500 of them were enough to hide a wrong balance.
test('the continuous audit reaches every account in use, even if there are many', async () => {
  const { database } = ledger
  await database.query(
    `with made as (
       insert into accounts (partition, id, name)
       select 0, gen_random_uuid(), 'crowd' from generate_series(1, 2500) union all select 0, $1::uuid, 'last'
       returning partition, id)
     insert into api_keys (partition, id, account_id, name, hint, last_used_at)
     select partition, gen_random_uuid(), id, 'key', 'penny_…', clock_timestamp() from made`,
    [farFuture],
  )
  const found: Violation[] = []
  const auditor = new Auditor({
    database,
    recentSeconds: 300,
    onViolations: (violations) => found.push(...violations),
  })
  await auditor.audit('recent')
  assert.deepEqual(found, [])
  await database.query('update accounts set credit = credit + 7 where id = $1', [farFuture])
  await auditor.audit('recent')
  assert.deepEqual(
    found.map(({ subject }) => subject),
    [farFuture],
  )
  assert.match((await findFreeze(database)) ?? '', /I1 is broken/)
  await database.query('update accounts set credit = 0 where id = $1', [farFuture])
  await database.query('update ledger_state set frozen_at = null, reason = null')
})

// On a cluster with a worker down, the tables that every worker has a copy of cannot be written.
test('an emergency freeze refuses holds, and the next audit writes it where it belongs', async () => {
  const { database } = ledger
  const holds = await openLedger(database)
  const payer = await openPayer(database, 1_000n)
  const open = await hold(holds, payer, 100n)
  await database.query("insert into emergency_freeze (frozen_at, reason) values (now(), 'a worker is down')")
  await assert.rejects(place(holds, payer, 100n), { code: 'overloaded' })
  assert.equal(await findFreeze(database), 'a worker is down')
  await holds.end(charge(open, 7n))
  await new Auditor({ database, recentSeconds: 300, onViolations: () => {} }).audit('recent')
  assert.equal(codeOf(await place(holds, payer, 100n)), 'ledger_frozen')
  assert.equal(await findFreeze(database), 'a worker is down')
  await unfreezeLedger(database)
  assert.equal(codeOf(await place(holds, payer, 100n)), 'held')
})

test('an account whose only request has been open for longer than the window is in use', async () => {
  const { database } = ledger
  const holds = await openLedger(database)
  const payer = await openPayer(database, 100_000n)
  const open = await hold(holds, payer, 1_000n)
  await database.query('update api_keys set last_used_at = $1', [new Date(Date.now() - 86_400_000)])
  const found: Violation[] = []
  const auditor = new Auditor({
    database,
    recentSeconds: 300,
    onViolations: (violations) => found.push(...violations),
  })
  await database.query('update accounts set held = held + 1, credit = credit - 1 where id = $1', [payer.accountId])
  await auditor.audit('recent')
  assert.deepEqual(new Set(found.map(({ subject }) => subject)), new Set([payer.accountId]))
  await database.query('update accounts set held = held - 1, credit = credit + 1 where id = $1', [payer.accountId])
  await holds.end(charge(open, 10n))
})
