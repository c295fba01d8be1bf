import assert from 'node:assert/strict'
import { test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { assertBooksBalance } from '../../test/support/audit.ts'
import { charge, hold, holdCall, openLedger, openPayer, voided } from '../../test/support/ledger.ts'
import { testDatabase } from '../../test/support/postgres.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import type { Database } from '../db/database.ts'
import type { Hold, Payer } from './hold-calls.ts'
import { deleteOldReplays } from './replays.ts'
import { createRequestId } from './request-id.ts'
import { createRequestMonths, deleteOldRefusals, findRequest } from './requests.ts'

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
  await deleteOldRefusals(ledger.database, 30)
  const left = await ledger.database.query<{ id: string }>('select id from request_log where account_id = $1', [
    payer.accountId,
  ])
  const ids = left.map(({ id }) => id)
  assert.deepEqual(ids.toSorted(), [young, open.requestId, paid.requestId].toSorted())
  await assertBooksBalance(ledger.database)
  await holds.end(voided(open))
})

/** Stores answers of 60 bytes, the n-th of them claimed `hours` and n seconds ago. */
async function storeAnswers(payer: Payer, count: number, isKeyed: boolean, hours: number): Promise<void> {
  await ledger.database.query(
    `insert into replays (partition, account_id, key_hash, body_hash, key_id, request_id, node, answer, is_keyed, created_at)
     select $1, $2, sha256(concat($5::boolean, '-', $6::int, '-', n)::bytea), sha256(''), $3::uuid, $3, $3, repeat('a', 60), $5,
            now() - $6::int * interval '1 hour' - n * interval '1 second'
       from generate_series(1, $4::int) n`,
    [payer.partition, payer.accountId, payer.keyId, count, isKeyed, hours],
  )
}

async function countAnswers({ accountId }: Payer): Promise<number> {
  const [row] = await ledger.database.query<{ count: number }>(
    'select count(*)::int as count from replays where account_id = $1',
    [accountId],
  )
  return row!.count
}

// The plans of a worker are not seen from the coordinator.
const isOnCluster = process.env.TEST_CITUS_WORKERS !== undefined
test('expired answers are found among many by index only, and deleted in chunks', async () => {
  const { database } = ledger
  const payer = await openPayer(database, 0n)
  await storeAnswers(payer, 12_000, true, 2)
  await storeAnswers(payer, 20, true, 25)
  await storeAnswers(payer, 20, false, 2)
  await storeAnswers(payer, 20, false, 0)
  await database.query('analyze replays')
  const plans: string[] = []
  const explaining = {
    async query(statement: string, values: readonly unknown[]) {
      if (!statement.includes('delete')) return database.query(statement, values)
      const rows = await database.query<{ 'QUERY PLAN': string }>(`explain ${statement}`, values)
      plans.push(rows.map((row) => row['QUERY PLAN']).join('\n'))
      return []
    },
    transaction: async () => [],
  } as unknown as Database
  await deleteOldReplays(explaining, 24, 1e9)
  assert.ok(plans.length > 0)
  if (!isOnCluster) assert.doesNotMatch(plans.join('\n'), /Seq Scan/)
  await deleteOldReplays(database, 24, 1e9)
  assert.equal(await countAnswers(payer), 12_020)
  await deleteOldReplays(database, 1, 1e9)
  assert.equal(await countAnswers(payer), 20, 'more than one chunk')
})

test('an account that stores too much loses its oldest answers, and only that account does', async () => {
  const { database } = ledger
  const [large, small] = [await openPayer(database, 0n), await openPayer(database, 0n)]
  await storeAnswers(large, 5, true, 2)
  await storeAnswers(large, 2, true, 0)
  await storeAnswers(small, 3, true, 2)
  await deleteOldReplays(database, 24, 180)
  assert.deepEqual([await countAnswers(large), await countAnswers(small)], [3, 3])
  await deleteOldReplays(database, 1, 180)
  assert.deepEqual([await countAnswers(large), await countAnswers(small)], [2, 0], 'the newest stayed')
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
    // A repeated hold or end finds the stored request, in whichever table it is.
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
  // Two months later its row would keep that month from getting a partition.
  const ahead = createRequestId(payer.partition, Date.now() + 90 * 86_400_000)
  await assert.rejects(holds.place(holdCall(payer, 100n, ahead)), /more than a month ahead/)
  await assertBooksBalance(database)
})
