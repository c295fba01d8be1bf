import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, before, test } from 'node:test'
import { openPayer } from '../../test/support/ledger.ts'
import { type TestDatabase, testDatabase } from '../../test/support/postgres.ts'
import { fromAtomic } from '../money/usdc.ts'
import { moveCursor } from './chain-cursors.ts'
import { readLedgerNumbers, tellDeposits } from './ledger-numbers.ts'
import { advanceWithdrawal, requestWithdrawal } from './withdrawals.ts'

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

test('a payout that does not get on is seen in the age of what is on its way out, as a withdrawal is', async () => {
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
  await database.query(`update withdrawals set created_at = created_at - interval '2 hours'`)
  assert.deepEqual(await outgoing(), [1, 2])
  await database.query(
    `insert into payouts (id, amount, fee_max, recipient, state, created_at)
     values ($1, 5, 0, $2, 'sent', clock_timestamp() - interval '5 hours')`,
    [randomUUID(), recipient],
  )
  assert.deepEqual(await outgoing(), [2, 5])
  await advanceWithdrawal(database, { partition, accountId, id, state: 'requested' }, { state: 'failed' })
  assert.deepEqual(await outgoing(), [1, 5])
  await database.query(`update payouts set state = 'confirmed'`)
  assert.deepEqual(await outgoing(), [0, 0])
})

test('the chain is behind when a reader of it is, not because the epoch is old', async () => {
  const { database } = ledger
  for (const name of ['arrivals', 'deposits', 'settlement epoch', 'recover from']) await moveCursor(database, name, 7n)
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

test('books that were never compared with the chain are neither solvent nor insolvent, and their comparison has no age', async () => {
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

// A scrape reads what is open; what has come in since the beginning is told now and then by one process.
test('deposits are told with their number and their sum', async () => {
  const { database } = ledger
  const before = await database.query<{ count: number; sum: number }>(
    'select count(*)::int as count, coalesce(sum(amount), 0)::int as sum from deposits',
  )
  await openPayer(database, 12_345n)
  await tellDeposits(database)
  const { told } = await readLedgerNumbers(database)
  const value = (name: string) => told.find((gauge) => gauge.name === name)?.value
  assert.equal(value('deposits_credited'), before[0]!.count + 1)
  assert.equal(value('deposited_micro_usdc'), before[0]!.sum + 12_345)
  assert.equal(value('deposits_seen'), 0)
})
