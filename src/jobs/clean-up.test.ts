import assert from 'node:assert/strict'
import { randomBytes, randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { openPayer } from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { createRequestId } from '../ledger/request-id.ts'
import { cleanUp } from './clean-up.ts'

const ledger = ledgerSuite()

test('cleanup deletes stored answers after a day, and those of SDK retries after an hour; no step fails', async () => {
  const { database } = ledger
  const { partition, accountId, keyId } = await openPayer(database, 0n)
  const rows = [
    ['keyed, 25 hours', true, 25],
    ['keyed, 2 hours', true, 2],
    ['retry, 2 hours', false, 2],
    ['retry, new', false, 0],
  ] as const
  for (const [answer, isKeyed, hours] of rows)
    await database.query(
      `insert into replays (partition, account_id, key_hash, body_hash, key_id, request_id, node, answer, is_keyed, created_at)
       values ($1, $2, $3, $3, $4, $5, $6, $7, $8, clock_timestamp() - $9 * interval '1 hour')`,
      [
        partition,
        accountId,
        randomBytes(32),
        keyId,
        createRequestId(partition, Date.now()),
        randomUUID(),
        answer,
        isKeyed,
        hours,
      ],
    )
  const errors: unknown[] = []
  await cleanUp(database, { replayHours: 24, refusedDays: 30 }, (error) => errors.push(error))
  assert.deepEqual(errors, [])
  const left = await database.query<{ answer: string }>('select answer from replays where account_id = $1', [accountId])
  assert.deepEqual(left.map(({ answer }) => answer).toSorted(), ['keyed, 2 hours', 'retry, new'])
})
