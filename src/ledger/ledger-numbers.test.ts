import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, before, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { charge, hold, openLedger, openPayer, settle } from '../../test/support/ledger.ts'
import { type TestDatabase, testDatabase } from '../../test/support/postgres.ts'
import { fromAtomic } from '../money/usdc.ts'
import { moveCursor } from './chain-cursors.ts'
import { readLedgerNumbers, storeDueRules, writeDepositMetrics, writePaymentMetrics } from './ledger-numbers.ts'
import { advanceTransfer } from './transfers.ts'
import { requestWithdrawal } from './withdrawals.ts'

let ledger: TestDatabase
before(async () => {
  ledger = await testDatabase()
})
after(() => ledger.drop())

const recipient = `0x${'a'.repeat(40)}`

async function outgoing(): Promise<readonly [count: number, hours: number]> {
  const { withdrawalsOpen, oldestWithdrawalSeconds } = await readLedgerNumbers(ledger.database)
  return [withdrawalsOpen, Math.floor(oldestWithdrawalSeconds / 3600)]
}

test('a stuck payout shows in the age of pending outgoing money, like a withdrawal', async () => {
  const { database } = ledger
  const { partition, accountId } = await openPayer(database, 10_000n)
  const id = randomUUID()
  await requestWithdrawal(database, {
    partition,
    accountId,
    id,
    amount: fromAtomic(1_000n),
    recipient,
    min: fromAtomic(1n),
  })
  await database.query('update transfers set created_at = $1', [new Date(Date.now() - 2 * 3_600_000)])
  assert.deepEqual(await outgoing(), [1, 2])
  await database.query(
    `insert into transfers (partition, kind, id, amount, fee_max, counterparty, state, created_at)
     values (0, 'payout', $1, 5, 0, $2, 'sent', clock_timestamp() - interval '5 hours')`,
    [randomUUID(), recipient],
  )
  assert.deepEqual(await outgoing(), [2, 5])
  await advanceTransfer(database, { partition, accountId, id, attempts: 0 }, { state: 'failed' })
  assert.deepEqual(await outgoing(), [1, 5])
  await database.query(`update transfers set state = 'confirmed' where kind = 'payout'`)
  assert.deepEqual(await outgoing(), [0, 0])
})

test('the chain is behind when a reader of it is, not because the epoch is old', async () => {
  const { database } = ledger
  for (const name of ['arrivals', 'deposits', 'recover from']) await moveCursor(database, name, 7n)
  await database.query(`update chain_cursors set changed_at = changed_at - interval '1 day' where name like '% %'`)
  const { cursors } = await readLedgerNumbers(database)
  assert.deepEqual(
    cursors.map(({ name, block }) => [name, block]),
    [
      ['arrivals', 7],
      ['deposits', 7],
    ],
  )
})

test('a ledger never compared with the chain is neither solvent nor insolvent, and its comparison has no age', async () => {
  const fresh = await testDatabase()
  try {
    const { solvent, solvencySeconds } = await readLedgerNumbers(fresh.database)
    assert.deepEqual([solvent, solvencySeconds], [undefined, undefined])
    await fresh.database.query(`insert into solvency (single, report, ok) values (true, '{}', true)`)
    const compared = await readLedgerNumbers(fresh.database)
    assert.equal(compared.solvent, true)
    assert.ok(compared.solvencySeconds! < 60)
  } finally {
    await fresh.drop()
  }
})

// A scrape reads open rows only; one process publishes the lifetime totals as process metrics from time to time.
test('deposits are reported with their number and their sum', async () => {
  const { database } = ledger
  const before = await database.query<{ count: number; sum: number }>(
    'select count(*)::int as count, coalesce(sum(amount), 0)::int as sum from deposits',
  )
  await openPayer(database, 12_345n)
  await writeDepositMetrics(database)
  const { processMetrics } = await readLedgerNumbers(database)
  const value = (name: string) => processMetrics.find((gauge) => gauge.name === name)?.value
  assert.equal(value('deposits_credited'), before[0]!.count + 1)
  assert.equal(value('deposited_micro_usdc'), before[0]!.sum + 12_345)
  assert.equal(value('deposits_seen'), 0)
})

test('a charge that waits longer than it should for a payment is seen, one that may wait is not late', async (t) => {
  const { database, drop } = await testDatabase()
  atEnd(t, drop)
  const ratio = async () => (await readLedgerNumbers(database)).unpaidDueRatio
  assert.equal(await ratio(), undefined, 'nobody has said when payments are due')
  await storeDueRules(database, {
    afterMs: 60_000,
    min: fromAtomic(500n),
    latestMs: 86_400_000,
    cap: fromAtomic(5_000n),
    max: fromAtomic(8_000n),
  })
  assert.equal(await ratio(), 0)
  const holds = await openLedger(database)
  const payer = await openPayer(database, 10_000n)
  await holds.end(charge(await hold(holds, payer, 1_000n), 400n))
  await database.query('update accounts set unpaid_since = $1', [new Date(Date.now() - 180_000)])
  assert.ok((await ratio())! < 0.01, 'a small sum may wait for a day')
  const numbers = await readLedgerNumbers(database)
  assert.deepEqual([numbers.unpaidAtomic, Math.floor(numbers.oldestUnpaidSeconds / 60)], [400, 3])
  await holds.end(charge(await hold(holds, payer, 1_000n), 400n))
  assert.equal(Math.floor((await ratio())!), 3)
  // The next payment waits for the one that is under way, whose own age is watched.
  await settle(database, [payer], 'received')
  await holds.end(charge(await hold(holds, payer, 1_000n), 900n))
  await database.query('update accounts set unpaid_since = $1', [new Date(Date.now() - 180_000)])
  assert.equal(await ratio(), 0)
})

test('payments are reported with the entries that they cover, and a payment that failed takes nothing back', async (t) => {
  const { database, drop } = await testDatabase()
  atEnd(t, drop)
  const holds = await openLedger(database)
  const payer = await openPayer(database, 10_000n)
  const reported = async (gas: bigint | undefined) => {
    await writePaymentMetrics(database, gas)
    const { processMetrics: gauges } = await readLedgerNumbers(database)
    return ['payments_made', 'entries_paid', 'payment_gas'].map(
      (name) => gauges.find((gauge) => gauge.name === name)?.value,
    )
  }
  for (let turn = 0; turn < 3; turn += 1) await holds.end(charge(await hold(holds, payer, 1_000n), 400n))
  await settle(database, [payer], 'received')
  assert.deepEqual(await reported(60_000n), [1, 3, 60_000])
  await database.query(`update payments set state = 'submitted'`)
  await settle(database, [payer], 'failed')
  assert.deepEqual(await reported(undefined), [1, 3, 60_000])
})
