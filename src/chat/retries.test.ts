import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { answeringParts, heldRequest, readingClient, routerOf } from '../../test/support/answering.ts'
import { atEnd } from '../../test/support/at-end.ts'
import { openKey, openLedger, openPayer } from '../../test/support/ledger.ts'
import { testDatabase } from '../../test/support/postgres.ts'
import { until } from '../../test/support/until.ts'
import { createRequestId } from '../ledger/request-id.ts'
import { defaultGrace } from './answers.ts'
import { Retries } from './retries.ts'

const retriesMax = 12
const connectionsMax = 4
const never = new AbortController().signal

test('an Idempotency-Key belongs to its API key and its body: another key sends another request, another body is refused', async (t) => {
  const { database, drop } = await testDatabase()
  atEnd(t, drop)
  const payer = await openPayer(database, 0n)
  const other = { ...payer, keyId: await openKey(database, { ...payer, id: payer.accountId }) }
  const node = randomUUID()
  const retries = new Retries({ database, ledger: database, node, grace: defaultGrace, now: () => performance.now() })
  const decide = (of: typeof payer, body = '{}') =>
    retries.decide(
      { payer: of, body: Buffer.from(body), idempotencyKey: 'order 1', retryCount: undefined },
      createRequestId(payer.partition, Date.now()),
    )
  const [first, foreign, repeated] = [await decide(payer), await decide(other), await decide(payer)]
  assert.deepEqual(['answer' in first, 'answer' in foreign, 'answer' in repeated], [true, true, false])
  await assert.rejects(decide(payer, '{"n":1}'), { code: 'idempotency_mismatch' })
  for (const decision of [first, foreign]) if ('answer' in decision) await decision.answer.refuse()
})

// Otherwise the retries of one account could wait for its lock on every connection that holds and ends need.
test(`refunds of one locked account occupy at most ${connectionsMax} connections, and are made when it is unlocked`, async (t) => {
  const { database, drop } = await testDatabase({ poolMax: retriesMax + 4 })
  atEnd(t, drop)
  const payer = await openPayer(database, 0n)
  const { partition, accountId } = payer
  const now = () => performance.now()
  const retries = new Retries({ database, ledger: database, node: randomUUID(), grace: defaultGrace, now })
  const decisions = await Promise.all(
    Array.from({ length: retriesMax }, (_, index) => {
      const marks = { payer, body: Buffer.from('{}'), idempotencyKey: `${index}`, retryCount: undefined }
      return retries.decide(marks, createRequestId(partition, Date.now()))
    }),
  )
  await database.query('update replays set earlier_id = $3 where partition = $1 and account_id = $2', [
    partition,
    accountId,
    randomUUID(),
  ])
  const delivered = await database.transaction(async (connection) => {
    await connection.query('select from accounts where partition = $1 and id = $2 for no key update', [
      partition,
      accountId,
    ])
    const delivering = decisions.map(async (decision) => {
      assert.ok('answer' in decision)
      const usage = { input_tokens: 5, output_tokens: 1 }
      const router = routerOf([{ type: 'finish', reason: 'stop', usage }])
      await decision.answer.serve(answeringParts({ router }).parts, heldRequest(), readingClient(never).client)
    })
    await until(async () => {
      const [active] = await database.query<{ count: number }>(
        `select count(*)::int as count from pg_stat_activity
          where datname = current_database() and state = 'active' and query like 'select refund_attempt%'`,
      )
      assert.ok(active!.count <= connectionsMax, `${active!.count} connections`)
      return active!.count === connectionsMax
    })
    return delivering
  })
  await Promise.all(delivered)
})

test('retries of one account that wait for another node read on two connections, and leave the others to key look-ups', async (t) => {
  const { database, drop } = await testDatabase({ poolMax: 2 * retriesMax })
  atEnd(t, drop)
  const payer = await openPayer(database, 0n)
  const node = randomUUID()
  await openLedger(database, { node })
  const open = (id: string) =>
    new Retries({ database, ledger: database, node: id, grace: defaultGrace, now: () => performance.now() })
  const [first, second] = [open(node), open(randomUUID())]
  const decide = (retries: Retries) =>
    Promise.all(
      Array.from({ length: retriesMax }, (_, index) => {
        const marks = { payer, body: Buffer.from('{}'), idempotencyKey: `${index}`, retryCount: undefined }
        return retries.decide(marks, createRequestId(payer.partition, Date.now()))
      }),
    )
  const running = await decide(first)
  const retried = await decide(second)
  const waiting = await database.transaction(async (connection) => {
    await connection.query('select from replays where account_id = $1 for update', [payer.accountId])
    const waits = retried.map((decision) => {
      assert.ok('earlier' in decision)
      return second.waitFor(decision.earlier, new AbortController().signal, () => {})
    })
    const all = Promise.allSettled(waits)
    await until(async () => {
      const [active] = await database.query<{ count: number }>(
        `select count(*)::int as count from pg_stat_activity
          where datname = current_database() and state = 'active' and query like 'with wanted as%'`,
      )
      assert.ok(active!.count <= 2, `${active!.count} connections`)
      return active!.count === 2
    })
    return { all }
  })
  for (const decision of running) if ('answer' in decision) await decision.answer.refuse()
  await waiting.all
})
