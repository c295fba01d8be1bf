import assert from 'node:assert/strict'
import { randomBytes, randomUUID } from 'node:crypto'
import { after, before, test } from 'node:test'
import { openPayer } from '../../test/support/ledger.ts'
import { type TestDatabase, testDatabase } from '../../test/support/postgres.ts'
import type { Database } from '../db/database.ts'
import type { Payer } from './hold-calls.ts'
import { claimReplay } from './replays.ts'
import { createRequestId } from './request-id.ts'
import { createRequestMonths } from './requests.ts'

const bodyHash = 4_711n
const many = 5_000
let ledger: TestDatabase
before(async () => {
  ledger = await testDatabase()
  await createRequestMonths(ledger.database)
})
after(() => ledger.drop())

// What a worker reads is not seen from the coordinator.
const skip = process.env.TEST_CITUS_WORKERS !== undefined
const agoCases = [
  { ago: '3 hours', rowsMax: 100 },
  { ago: '40 days', rowsMax: 100 },
  { ago: '30 minutes', rowsMax: 1_100 },
]
for (const { ago, rowsMax } of agoCases) {
  test(`a retry reads at most ${rowsMax} of ${many} equal requests that ended ${ago} ago`, { skip }, async () => {
    const { database } = ledger
    const payer = await openPayer(database, 0n)
    await storeEnded(payer, ago)
    await storeNeighbours(payer, ago)
    await database.query('analyze requests')
    const rows = await database.transaction(async (connection) => {
      const claim = { requestId: createRequestId(payer.partition, Date.now()), node: randomUUID() }
      const key = { payer, keyHash: randomBytes(32), bodyHash: randomBytes(32), attemptHash: bodyHash }
      assert.deepEqual(await claimReplay(connection as Database, key, claim), { state: 'claimed' })
      const [read] = await connection.query<{ rows: number }>(
        `select sum(coalesce(idx_tup_fetch, 0) + seq_tup_read)::int as rows
           from pg_stat_xact_user_tables where relname like 'requests\\_%'`,
      )
      return read!.rows
    })
    assert.ok(rows <= rowsMax, `${rows} rows`)
  })
}

/** Requests of other accounts, stored so that the primary key is in the order of the table: the planner likes such an index best. */
async function storeNeighbours({ partition }: Payer, ago: string): Promise<void> {
  await ledger.database.query(
    `insert into requests (partition, id, account_id, key_id, node, status, model, stream, created_at, ended_at, entry, body_hash)
     select $1 + 1 + n / $2::int, (left(first_request_id(t.at)::text, 24) || lpad(to_hex(n), 12, '0'))::uuid, gen_random_uuid(), gen_random_uuid(),
            gen_random_uuid(), 'failed', 'm', false, t.at, t.at, 1, n
       from generate_series(1, 2 * $2::int) n
       cross join lateral (select now() - $3::interval + n * interval '1 millisecond' as at) t`,
    [partition, many, ago],
  )
}

/** Equal requests, a millisecond apart. */
async function storeEnded({ partition, accountId, keyId }: Payer, ago: string): Promise<void> {
  await ledger.database.query(
    `insert into requests (partition, id, account_id, key_id, node, status, model, stream, created_at, ended_at, entry, body_hash)
     select $1, (left(first_request_id(t.at)::text, 24) || lpad(to_hex(n), 12, '0'))::uuid, $2, $3, gen_random_uuid(), 'failed', 'm', false,
            t.at, t.at, n, $4
       from generate_series(1, $5::int) n
       cross join lateral (select now() - $6::interval + n * interval '1 millisecond' as at) t`,
    [partition, accountId, keyId, bodyHash, many, ago],
  )
}
