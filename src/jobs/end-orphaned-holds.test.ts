import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
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
import { ledgerSuite } from '../../test/support/suites.ts'
import { findAccount } from '../ledger/accounts.ts'
import { endLease, renewLease } from '../ledger/nodes.ts'
import { fromAtomic } from '../money/usdc.ts'
import { endOrphanedHolds } from './end-orphaned-holds.ts'

const ledger = ledgerSuite()

/** Two nodes on one ledger: one that will die, one that lives on. */
async function openNodes() {
  const dying = randomUUID()
  return {
    dying,
    first: await openLedger(ledger.database, { node: dying }),
    second: await openLedger(ledger.database),
    die: () => endLease(ledger.database, dying),
  }
}

const rowOf = async (id: string) => {
  const [row] = await ledger.database.query('select status, voided, charged, error_code from requests where id = $1', [
    id,
  ])
  return row
}

test('a node’s death without a checkpoint voids what it held', async () => {
  const { first, second, die } = await openNodes()
  const payer = await openPayer(ledger.database, 5_000n)
  const placed = await hold(first, payer, 1_000n)
  await die()
  assert.equal(await endOrphanedHolds(ledger.database, second), 1)
  assert.deepEqual(await rowOf(placed.requestId), {
    status: 'failed',
    voided: true,
    charged: 0n,
    error_code: 'interrupted',
  })
  assert.equal((await findAccount(ledger.database, payer.partition, payer.accountId))?.spendable, 5_000n)
})

// After a laptop was suspended for a month, or a copy was restored, the age of holds in milliseconds exceeds an integer.
test('a hold that was open for months is ended, and does not keep others from being ended', async () => {
  const { first, second, die } = await openNodes()
  const payer = await openPayer(ledger.database, 5_000n)
  const [old, young] = [await hold(first, payer, 1_000n), await hold(first, payer, 1_000n)]
  await ledger.database.query('update holds set created_at = $2 where id = $1', [
    old.requestId,
    new Date(Date.now() - 100 * 86_400_000),
  ])
  await die()
  assert.equal(await endOrphanedHolds(ledger.database, second), 2)
  for (const { requestId } of [old, young]) assert.equal((await rowOf(requestId))?.status, 'failed')
})

test('an orphaned hold with a checkpoint is charged up to there, and never more than was held', async () => {
  const { first, second, die } = await openNodes()
  const payer = await openPayer(ledger.database, 50_000n)
  const [some, much] = [await hold(first, payer, 1_000n), await hold(first, payer, 1_000n)]
  first.checkpoint({ requestId: some.requestId, partition: payer.partition, promptTokens: 100, completionTokens: 20 })
  first.checkpoint({ requestId: some.requestId, partition: payer.partition, promptTokens: 100, completionTokens: 50 })
  first.checkpoint({
    requestId: much.requestId,
    partition: payer.partition,
    promptTokens: 100,
    completionTokens: 5_000,
  })
  await first.drained()
  await die()
  await endOrphanedHolds(ledger.database, second)
  assert.deepEqual(await rowOf(some.requestId), {
    status: 'failed',
    voided: false,
    charged: 150n,
    error_code: 'interrupted',
  })
  assert.deepEqual(await rowOf(much.requestId), {
    status: 'failed',
    voided: false,
    charged: 1_000n,
    error_code: 'interrupted',
  })
})

test('searches that ran are charged with what was delivered, and void with a request that delivered nothing', async () => {
  const { first, second, die } = await openNodes()
  const payer = await openPayer(ledger.database, 50_000n)
  const [delivered, silent] = [await hold(first, payer, 1_000n), await hold(first, payer, 1_000n)]
  for (const placed of [delivered, silent]) {
    const { requestId } = placed
    assert.equal(await first.extend({ requestId, payer, total: fromAtomic(2n * searchPrice) }), 'extended')
    first.recordToolCall(searched(placed, 1))
    first.recordToolCall({ ...searched(placed, 2), status: 'failed', cost: fromAtomic(0n), results: 0 })
    first.recordToolCall({ ...searched(placed, 3), kind: 'fetch', cost: fromAtomic(0n), results: 1 })
  }
  const evidence = { promptTokens: 100, completionTokens: 50 }
  first.checkpoint({ requestId: delivered.requestId, partition: payer.partition, ...evidence })
  await first.drained()
  await die()
  await endOrphanedHolds(ledger.database, second)
  assert.equal((await rowOf(delivered.requestId))?.charged, 150n + searchPrice)
  assert.equal((await rowOf(silent.requestId))?.voided, true)
  const [row] = await ledger.database.query(
    'select search_cost, search_calls, fetch_calls from requests where id = $1',
    [delivered.requestId],
  )
  assert.deepEqual(row, { search_cost: searchPrice, search_calls: 1, fetch_calls: 1 })
  const account = await findAccount(ledger.database, payer.partition, payer.accountId)
  assert.equal(account?.spendable, 50_000n - 150n - searchPrice)
})

test('a hold whose prices the ledger does not know is void, also with a checkpoint, and is reported', async () => {
  const { first, second, die } = await openNodes()
  const payer = await openPayer(ledger.database, 5_000n)
  const placed = await hold(first, payer, 1_000n)
  const { requestId } = placed
  first.checkpoint({ requestId, partition: payer.partition, promptTokens: 100, completionTokens: 50 })
  await first.drained()
  await ledger.database.query("update holds set price_version = 'unknown' where id = $1", [requestId])
  await die()
  const unpriced: string[] = []
  const onUnpriced = ({ requestId: id }: { readonly requestId: string }) => unpriced.push(id)
  assert.equal(await endOrphanedHolds(ledger.database, second, { onUnpriced }), 1)
  assert.deepEqual(unpriced, [requestId])
  assert.deepEqual(await rowOf(requestId), { status: 'failed', voided: true, charged: 0n, error_code: 'interrupted' })
  assert.equal((await findAccount(ledger.database, payer.partition, payer.accountId))?.spendable, 5_000n)
})

test('a node that slept past its lease extends nothing', async () => {
  const { first, second, die } = await openNodes()
  const placed = await hold(first, await openPayer(ledger.database, 50_000n), 1_000n)
  const { requestId, payer } = placed
  await die()
  await assert.rejects(first.extend({ requestId, payer, total: fromAtomic(1n) }), { code: 'overloaded' })
  await second.end(voided(placed))
})

test('a hold of a live node is never treated as an orphan, however old it is', async () => {
  const { first, second } = await openNodes()
  const placed = await hold(first, await openPayer(ledger.database, 5_000n), 1_000n)
  await ledger.database.query('update holds set created_at = $2 where id = $1', [
    placed.requestId,
    new Date(Date.now() - 365 * 86_400_000),
  ])
  assert.equal(await endOrphanedHolds(ledger.database, second), 0)
  await first.end(charge(placed, 10n))
})

test('a node that slept past its lease cannot end a second time', async () => {
  const { first, second, die } = await openNodes()
  const placed = await hold(first, await openPayer(ledger.database, 5_000n), 1_000n)
  await die()
  await endOrphanedHolds(ledger.database, second)
  assert.deepEqual(await first.end(charge(placed, 700n)), { endedNow: false, status: 'failed', charged: 0n })
})

test('a node that slept past its lease holds nothing until it has renewed it, and learns that it had lapsed', async () => {
  const { first, dying, die } = await openNodes()
  const payer = await openPayer(ledger.database, 5_000n)
  await die()
  await assert.rejects(place(first, payer, 1_000n), { code: 'overloaded' })
  assert.equal(await renewLease(ledger.database, dying, 60_000), false)
  assert.equal(await renewLease(ledger.database, dying, 60_000), true)
  await first.end(voided(await hold(first, payer, 1_000n)))
})

test('a node whose lease the ledger refuses renews it, and then holds and extends immediately', async () => {
  const { dying, die } = await openNodes()
  const renewing = await openLedger(ledger.database, {
    node: dying,
    renewLease: () => renewLease(ledger.database, dying, 60_000),
  })
  const payer = await openPayer(ledger.database, 50_000n)
  await die()
  const placed = await Promise.all(Array.from({ length: 20 }, () => hold(renewing, payer, 1_000n)))
  const [extended, ...others] = placed
  await die()
  const { requestId } = extended!
  assert.equal(await renewing.extend({ requestId, payer, total: fromAtomic(1n) }), 'extended')
  await Promise.all([extended!, ...others].map((each) => renewing.end(voided(each))))
})

test('two nodes that end orphaned holds concurrently end each one once', async () => {
  const { first, second, die } = await openNodes()
  const payer = await openPayer(ledger.database, 500_000n)
  await Promise.all(Array.from({ length: 50 }, () => hold(first, payer, 1_000n)))
  await die()
  const third = await openLedger(ledger.database)
  const counts = await Promise.all([
    endOrphanedHolds(ledger.database, second),
    endOrphanedHolds(ledger.database, third),
  ])
  assert.equal(counts[0] + counts[1], 50)
})

test('a frozen ledger takes no new holds, and lets open ones end', async () => {
  const { second } = await openNodes()
  const payer = await openPayer(ledger.database, 5_000n)
  const placed = await hold(second, payer, 1_000n)
  await ledger.database.query("update ledger_state set frozen_at = now(), reason = 'test'")
  assert.equal(codeOf(await place(second, payer, 1_000n)), 'ledger_frozen')
  await second.end(charge(placed, 100n))
  await ledger.database.query('update ledger_state set frozen_at = null, reason = null')
})
