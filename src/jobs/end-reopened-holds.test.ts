import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  charge,
  codeOf,
  hold,
  openLedger,
  openPayer,
  place,
  searched,
  searchPrice,
  voided,
} from '../../test/support/ledger.ts'
import { replaceIn } from '../../test/support/replace-in-database.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import type { Connection } from '../db/database.ts'
import { findAccount } from '../ledger/accounts.ts'
import type { Payer } from '../ledger/hold-calls.ts'
import { fromAtomic } from '../money/usdc.ts'
import { endOrphanedHolds } from './end-orphaned-holds.ts'
import { endReopenedHolds } from './end-reopened-holds.ts'

const ledger = ledgerSuite()

/** A node on a primary that dies: what it commits meanwhile is acknowledged, and the promoted standby does not have it. */
async function openNode() {
  let isLosing = false
  const onPrimary = async <Result>(work: (connection: Connection) => Promise<Result>): Promise<Result> => {
    let result: { readonly value: Result } | undefined
    await ledger.database
      .transaction(async (connection) => {
        result = { value: await work(connection) }
        throw new LostCommit()
      })
      .catch((error: unknown) => {
        if (!(error instanceof LostCommit)) throw error
      })
    return result!.value
  }
  const database = replaceIn(ledger.database, {
    queryPrepared: (...call) =>
      isLosing ? onPrimary((primary) => primary.queryPrepared(...call)) : ledger.database.queryPrepared(...call),
    close: async () => {},
  })
  const holds = await openLedger(database)
  return {
    holds,
    async losing<Result>(work: () => Promise<Result>): Promise<Result> {
      isLosing = true
      try {
        return await work()
      } finally {
        await holds.drained()
        isLosing = false
      }
    },
    check: () => endReopenedHolds(ledger.database, holds),
  }
}

class LostCommit extends Error {}

const rowOf = async (id: string) => {
  const [row] = await ledger.database.query(
    'select status, voided, charged, search_cost, prompt_tokens, finish_reason, error_code from requests where id = $1',
    [id],
  )
  return row
}

const spendable = async ({ partition, accountId }: Payer) =>
  (await findAccount(ledger.database, partition, accountId))?.spendable

const nothing = { same: 0, checkpoint: 0, failures: [] }

test('an end that a failover lost is written again with the same charge, once', async () => {
  const { holds, losing, check } = await openNode()
  const payer = await openPayer(ledger.database, 5_000n)
  const [charged, free] = [await hold(holds, payer, 1_000n), await hold(holds, payer, 1_000n)]
  assert.equal((await losing(() => holds.end(charge(charged, 700n)))).charged, 700n)
  await losing(() => holds.end(voided(free)))
  assert.equal(await rowOf(charged.requestId), undefined)
  assert.deepEqual(await check(), { ...nothing, same: 2 })
  const row = await rowOf(charged.requestId)
  assert.deepEqual(row, {
    status: 'succeeded',
    voided: false,
    charged: 700n,
    search_cost: 0n,
    prompt_tokens: 700,
    finish_reason: 'stop',
    error_code: null,
  })
  assert.equal((await rowOf(free.requestId))?.voided, true)
  assert.equal(await spendable(payer), 4_300n)
  assert.deepEqual(await check(), nothing)
  assert.equal(await spendable(payer), 4_300n)
})

test('two checks at the same time end a reopened request once', async () => {
  const { holds, losing, check } = await openNode()
  const payer = await openPayer(ledger.database, 50_000n)
  const placed = await Promise.all(Array.from({ length: 20 }, () => hold(holds, payer, 1_000n)))
  await losing(() => Promise.all(placed.map((one) => holds.end(charge(one, 100n)))))
  const [one, other] = await Promise.all([check(), check()])
  assert.equal(one.same + other.same, 20)
  assert.deepEqual([...one.failures, ...other.failures], [])
  assert.equal(await spendable(payer), 48_000n)
})

test('a request that is being served is never ended by the check', async () => {
  const { holds, check } = await openNode()
  const payer = await openPayer(ledger.database, 5_000n)
  const placing = [hold(holds, payer, 1_000n), check(), hold(holds, payer, 1_000n), check()] as const
  const [first, , second] = await Promise.all(placing)
  assert.deepEqual(await check(), nothing)
  // After an outage longer than its lease, the node's own requests look like those of a dead one.
  await ledger.database.query(`update nodes set lease_until = '-infinity' where id = $1`, [holds.node])
  assert.equal(await endOrphanedHolds(ledger.database, holds), 0)
  for (const placed of [first, second]) assert.equal((await holds.end(charge(placed, 10n))).endedNow, true)
})

test('a request whose end is not remembered is ended at its last checkpoint, or void', async () => {
  const { holds, check } = await openNode()
  const payer = await openPayer(ledger.database, 5_000n)
  const [streamed, silent] = [await hold(holds, payer, 1_000n), await hold(holds, payer, 1_000n)]
  const { requestId } = streamed
  holds.checkpoint({ requestId, partition: payer.partition, promptTokens: 100, completionTokens: 50 })
  await holds.drained()
  // Its node has been replaced by one that remembers nothing of it.
  const other = await openLedger(ledger.database)
  await ledger.database.query('update holds set node = $1 where id = any ($2)', [
    other.node,
    [streamed.requestId, silent.requestId],
  ])
  assert.deepEqual(await check(), nothing)
  assert.deepEqual(await endReopenedHolds(ledger.database, other), { ...nothing, checkpoint: 2 })
  assert.equal((await rowOf(streamed.requestId))?.charged, 150n)
  assert.equal((await rowOf(silent.requestId))?.voided, true)
})

test('a request whose hold was lost is answered and not charged', async () => {
  const { holds, losing, check } = await openNode()
  const payer = await openPayer(ledger.database, 5_000n)
  const [lost, kept] = [await losing(() => hold(holds, payer, 1_000n)), await hold(holds, payer, 1_000n)]
  const ends = await Promise.all([holds.end(charge(lost, 700n)), holds.end(charge(kept, 10n))])
  assert.deepEqual(ends[0], { endedNow: false, status: 'lost', charged: 0n })
  assert.deepEqual(ends[1], { endedNow: true, status: 'succeeded', charged: 10n })
  assert.equal(await rowOf(lost.requestId), undefined)
  assert.equal(await spendable(payer), 4_990n)
  assert.deepEqual(await check(), nothing)
})

// The end charges a search above the quote: without its extension the ledger refuses it, without its line the ledger is off.
test('searches whose records were lost are charged as they were', async () => {
  const { holds, losing, check } = await openNode()
  const payer = await openPayer(ledger.database, 50_000n)
  const [open, ended] = [await hold(holds, payer, 1_000n), await hold(holds, payer, 1_000n)]
  const searchedEnd = { searchCost: fromAtomic(searchPrice), searchCalls: 1 }
  await losing(async () => {
    for (const placed of [open, ended]) {
      const { requestId } = placed
      assert.equal(await holds.extend({ requestId, payer, total: fromAtomic(searchPrice) }), 'extended')
      holds.recordToolCall(searched(placed, 1))
    }
    await holds.end(charge(ended, 0n)).catch(() => {})
  })
  assert.equal((await holds.end(charge(open, searchPrice + 100n, searchedEnd))).charged, searchPrice + 100n)
  assert.deepEqual(await check(), { ...nothing, same: 1 })
  assert.equal((await rowOf(open.requestId))?.search_cost, searchPrice)
})

test('a reopened request that needs money which is gone is ended at its checkpoint', async () => {
  const { holds, losing, check } = await openNode()
  const payer = await openPayer(ledger.database, 2_000n + searchPrice)
  const placed = await hold(holds, payer, 1_000n)
  const { requestId } = placed
  await losing(() => holds.extend({ requestId, payer, total: fromAtomic(searchPrice) }))
  const spent = await place(holds, payer, searchPrice)
  assert.equal(codeOf(spent), 'held')
  const end = charge(placed, searchPrice + 100n, { searchCost: fromAtomic(searchPrice), searchCalls: 1 })
  await assert.rejects(holds.end(end), { code: '23514' })
  assert.deepEqual(await check(), { ...nothing, checkpoint: 1 })
  assert.equal((await rowOf(requestId))?.voided, true)
  if ('hold' in spent) await holds.end(voided(spent.hold))
})
