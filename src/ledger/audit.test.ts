import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { charge, hold, openLedger, openPayer, search, settle, voided } from '../../test/support/ledger.ts'
import { type TestDatabase, testDatabase } from '../../test/support/postgres.ts'
import { findRecentViolations, findViolations, invariants } from './audit.ts'

let ledger: TestDatabase
before(async () => {
  ledger = await testDatabase()
  // The constraints would refuse the corruptions below. They are removed, because this tests the auditor.
  const drop = (table: string, constraints: readonly string[]) =>
    ledger.database.execute(`alter table ${table} ${constraints.map((name) => `drop constraint ${name}`)}`)
  await drop('accounts', ['accounts_not_overspent', 'accounts_not_negative'])
  await drop('requests', ['requests_hold_is_whole', 'requests_charge'])
})
after(() => ledger.drop())

// One corruption per invariant, done to an account with a charged, a searching, a voided and an open request.
const corruptions: Readonly<Record<string, string>> = {
  I1: 'update accounts set gateway = gateway + 1 where id = $1',
  I2: 'update accounts set held = held + 1 where id = $1',
  I3: 'update accounts set extended = 1000000 where id = $1',
  I4: 'update api_keys set spent = spent + 1, held = held + 1 where account_id = $1',
  I5: "update requests set charged = quote + extended + 1 where account_id = $1 and status = 'succeeded'",
  I6: "update requests set usage_source = null where account_id = $1 and status = 'succeeded'",
  I7: 'update requests set tool_calls = null where account_id = $1',
  I8: 'update requests set entry = entry + 1 where account_id = $1',
  I9: 'update payments set value = value + 1 where account_id = $1',
  I10: 'update accounts set paid = paid + 1 where id = $1',
  I11: 'update accounts set deposited = deposited + 1, gateway = gateway + 1 where id = $1',
}

/** Violations that only a sum over every row reveals. */
const onlyInFull = ['I8', 'I9', 'I11']

test('every invariant has a corruption that shows', () => {
  // I13 is of snapshots, not of accounts: src/settlement/liabilities.test.ts.
  assert.deepEqual([...Object.keys(corruptions), 'I13'], invariants)
})

for (const [invariant, corruption] of Object.entries(corruptions)) {
  test(`${invariant}: a corruption is found, at its account and nowhere else`, async () => {
    const holds = await openLedger(ledger.database)
    const payer = await openPayer(ledger.database, 100_000n)
    const healthy = await openPayer(ledger.database, 100_000n)
    await holds.end(charge(await hold(holds, payer, 1_000n), 900n))
    await holds.end(charge(await hold(holds, healthy, 1_000n), 900n))
    await search(holds, await hold(holds, payer, 1_000n))
    await search(holds, await hold(holds, healthy, 1_000n))
    await holds.end(voided(await hold(holds, payer, 1_000n)))
    await settle(ledger.database, [payer, healthy], 'completed')
    const open = await hold(holds, payer, 1_000n)
    assert.deepEqual(await findViolations(ledger.database, [payer.accountId, healthy.accountId]), [])

    await ledger.database.query(corruption, [payer.accountId])
    const found = await findViolations(ledger.database, [payer.accountId])
    assert.ok(
      found.some((violation) => violation.invariant === invariant),
      JSON.stringify(found),
    )
    assert.deepEqual(await findViolations(ledger.database, [healthy.accountId]), [])

    const seen = await findRecentViolations(ledger.database, [payer.accountId], 60)
    const shows = seen.some((violation) => violation.invariant === invariant)
    assert.equal(shows, !onlyInFull.includes(invariant), 'the running audit')
    assert.deepEqual(await findRecentViolations(ledger.database, [healthy.accountId], 60), [])
    await holds.end(voided(open)).catch(() => {})
  })
}
