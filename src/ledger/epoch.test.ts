import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, before, test } from 'node:test'
import { charge, hold, openLedger, openPayer, settle } from '../../test/support/ledger.ts'
import { type TestDatabase, testDatabase } from '../../test/support/postgres.ts'
import { fromAtomic } from '../money/usdc.ts'
import { adjustAccount } from './adjustments.ts'
import { beginEpoch, requireEpoch } from './epoch.ts'
import { requestWithdrawal } from './withdrawals.ts'

let ledger: TestDatabase
before(async () => {
  ledger = await testDatabase()
})
after(() => ledger.drop())

test('an epoch is raised only when no payment is on its way, and never lowered', async () => {
  const { database } = ledger
  await beginEpoch(database, 0)
  await beginEpoch(database, 0)
  await beginEpoch(database, 3)
  await assert.rejects(requireEpoch(database, 2), /SETTLEMENT_EPOCH is 2, but this ledger is in epoch 3/)
  await assert.rejects(beginEpoch(database, 2), /SETTLEMENT_EPOCH is 2, but this ledger is in epoch 3/)
  const holds = await openLedger(database)
  const payer = await openPayer(database, 10_000n)
  await holds.end(charge(await hold(holds, payer, 1_000n), 900n))
  await requireEpoch(database, 4)
  await settle(database, [payer], 'unknown')
  await assert.rejects(requireEpoch(database, 4), /with 1 open payments: set it to 3/)
  await requireEpoch(database, 3)
})

test('an epoch is not raised while the seller pays something back: it would be paid back twice', async () => {
  const { database } = ledger
  await database.query("update payments set state = 'completed'")
  const holds = await openLedger(database)
  const payer = await openPayer(database, 10_000n)
  const account = { partition: payer.partition, id: payer.accountId }
  await holds.end(charge(await hold(holds, payer, 1_000n), 900n))
  await settle(database, [payer], 'completed')
  await adjustAccount(database, account, { id: randomUUID(), amount: 900n, reason: 'test', madeBy: 'test' })
  await requestWithdrawal(database, {
    partition: payer.partition,
    accountId: payer.accountId,
    id: randomUUID(),
    amount: fromAtomic(10_000n),
    recipient: `0x${'a'.repeat(40)}`,
    min: fromAtomic(1n),
  })
  await database.query('select make_payments($1, array[$2::uuid], array[$2::uuid], 4096, 1000000, 3)', [
    payer.partition,
    payer.accountId,
  ])
  await assert.rejects(requireEpoch(database, 5), /with 1 open payments/)
  await settle(database, [payer], 'completed')
  await requireEpoch(database, 5)
})

test('a node that starts in a new epoch and waits for its turn does not change that of the node that settles', async () => {
  const { database } = ledger
  const holds = await openLedger(database)
  await beginEpoch(database, 6)
  await requireEpoch(database, 7)
  await requireEpoch(database, 6)
  await holds.end(charge(await hold(holds, await openPayer(database, 10_000n), 1_000n), 900n))
  // Its turn has come, with a payment open that will keep its epoch.
  await beginEpoch(database, 7)
  await assert.rejects(beginEpoch(database, 6), /in epoch 7/)
})
