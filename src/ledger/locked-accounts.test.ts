import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import {
  charge,
  codeOf,
  hold,
  holdCall,
  newReplayKey,
  openLedger,
  openPayer,
  partitions,
  place,
  voided,
} from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { until } from '../../test/support/until.ts'
import { newWallet, payFor, signedPayment } from '../../test/support/wallet-payments.ts'
import { isLockTimeout } from '../db/database.ts'
import { fromAtomic } from '../money/usdc.ts'
import type { HoldDecision, Payer } from './hold-calls.ts'
import type { Holds } from './holds.ts'
import { claimReplay, refundAttempt } from './replays.ts'
import { createRequestId } from './request-id.ts'
import type { X402Wallet } from './wallet-accounts.ts'

const ledger = ledgerSuite()
/** Callers wait for as long as a test keeps an account locked, also on a slow machine. */
const patient = { waitMsMax: 120_000 }

/** Another session takes an account's lock and keeps it until the test says so: a slow transaction, or an attack. */
async function lockAccount(t: TestContext, { partition, accountId }: Payer): Promise<() => Promise<void>> {
  const locked = Promise.withResolvers<void>()
  const released = Promise.withResolvers<void>()
  const session = ledger.database.transaction(async (connection) => {
    await connection.query('select 1 from accounts where partition = $1 and id = $2 for no key update', [
      partition,
      accountId,
    ])
    locked.resolve()
    await released.promise
  })
  const release = async () => {
    released.resolve()
    await session
  }
  atEnd(t, release)
  await locked.promise
  return release
}

/** Payers of one partition, and of both lanes: a lane is chosen by the last digit of the account's id. */
async function openPayers(): Promise<readonly [Payer, ...Payer[]]> {
  const payers: Payer[] = []
  const lanes = new Set<number>()
  while (payers.length < 6 || lanes.size < 2) {
    const payer = await openPayer(ledger.database, 100_000n)
    if (payers.length > 0 && payer.partition !== payers[0]!.partition && partitions > 1) continue
    payers.push(payer)
    lanes.add(Number.parseInt(payer.accountId.at(-1)!, 16) & 1)
  }
  return payers as [Payer, ...Payer[]]
}

const isSettled = async (promise: Promise<unknown>) =>
  Promise.race([promise.then(() => true), new Promise<boolean>((resolve) => setImmediate(() => resolve(false)))])

test('requests of other accounts are held, extended, checkpointed and charged while one account is locked', async (t) => {
  const holds = await openLedger(ledger.database, patient)
  const [stuck, ...others] = await openPayers()
  const before = await hold(holds, stuck, 1_000n)
  const release = await lockAccount(t, stuck)

  const waiting = place(holds, stuck, 500n)
  const ending = holds.end(charge(before, 300n))
  const extending = holds.extend({ requestId: before.requestId, payer: stuck, total: fromAtomic(10n) })
  holds.refuse(refusal(stuck))
  for (let turn = 0; turn < 3; turn += 1) {
    await Promise.all(others.map((payer) => serve(holds, payer)))
  }
  assert.deepEqual(await Promise.all([waiting, ending, extending].map(isSettled)), [false, false, false])

  await release()
  assert.equal(codeOf(await waiting), 'held')
  const { endedNow, charged } = await ending
  assert.deepEqual([endedNow, charged], [true, 300n])
  assert.ok(['extended', 'ended'].includes(await extending))
  await holds.drained()
  await endOpen(holds, waiting)
})

test('payments of other wallets are credited and held while one wallet is locked', async (t) => {
  const { database } = ledger
  const holds = await openLedger(database, patient)
  const wallets: X402Wallet[] = []
  while (wallets.length < 3) {
    const wallet = await newWallet(database)
    if (wallet.partition === (wallets[0] ?? wallet).partition) wallets.push(wallet)
  }
  const [stuck, ...others] = wallets as [X402Wallet, ...X402Wallet[]]
  const buy = (wallet: X402Wallet) => payFor(database, holds, signedPayment(wallet, 100n), 100n)
  const end = async (decision: Awaited<ReturnType<typeof buy>>) => {
    assert.ok(typeof decision !== 'string' && 'hold' in decision)
    await holds.end(voided(decision.hold))
  }
  await end(await buy(stuck))
  const release = await lockAccount(t, stuck)
  const waiting = [buy(stuck), buy(stuck), buy(stuck)]
  for (let turn = 0; turn < 3; turn += 1) for (const wallet of others) await end(await buy(wallet))
  assert.deepEqual(await Promise.all(waiting.map(isSettled)), [false, false, false])
  await release()
  for (const decision of await Promise.all(waiting)) await end(decision)
  await holds.drained()
})

/** A whole request, checkpoint and refusal included. */
async function serve(holds: Holds, payer: Payer): Promise<void> {
  const placed = await hold(holds, payer, 1_000n)
  const { requestId } = placed
  assert.equal(await holds.extend({ requestId, payer, total: fromAtomic(50n) }), 'extended')
  holds.checkpoint({ requestId, partition: payer.partition, promptTokens: 1, completionTokens: 1 })
  await until(async () => {
    const rows = await ledger.database.query('select 1 from holds where id = $1 and prompt_tokens is not null', [
      requestId,
    ])
    return rows.length === 1
  })
  holds.refuse(refusal(payer))
  assert.equal((await holds.end(charge(placed, 200n))).endedNow, true)
}

test('refunds of retries of a locked account delay no hold of another, and those without an earlier attempt do not wait', async (t) => {
  const { database } = ledger
  const [stuck, other] = await openPayers()
  const first = newReplayKey(stuck)
  const firstId = createRequestId(stuck.partition, Date.now())
  await claimReplay(database, first, { requestId: firstId, node: randomUUID() })
  const again = newReplayKey(stuck)
  const againId = createRequestId(stuck.partition, Date.now())
  await claimReplay(database, again, { requestId: againId, node: randomUUID() })
  await database.query(
    'update replays set earlier_id = $4 where partition = $1 and account_id = $2 and key_hash = $3 and earlier_id is null',
    [stuck.partition, stuck.accountId, again.keyHash, firstId],
  )
  const holds = await openLedger(database, { waitMsMax: 10_000 })
  await lockAccount(t, stuck)
  const refunds = Array.from({ length: 16 }, () => refundAttempt(database, again, againId))
  const refunded = Promise.allSettled(refunds)
  // Throws when it takes longer than `waitMsMax`.
  await holds.end(voided(await hold(holds, other!, 100n)))
  assert.equal(await refundAttempt(database, first, firstId), 0n)
  for (const refund of await refunded) assert.ok(refund.status === 'rejected' && isLockTimeout(refund.reason))
})

test('an end that waits for a locked account is charged once, however long that takes', async (t) => {
  const holds = await openLedger(ledger.database, patient)
  const [stuck, other] = await openPayers()
  const placed = await hold(holds, stuck, 1_000n)
  const release = await lockAccount(t, stuck)
  const ends = Array.from({ length: 3 }, () => holds.end(charge(placed, 400n)))
  // The lock outlives several attempts; meanwhile the same lane serves another account.
  for (let turn = 0; turn < 20; turn += 1) await holds.end(voided(await hold(holds, other!, 100n)))
  await release()
  const ended = await Promise.all(ends)
  assert.deepEqual(
    ended.map(({ endedNow, charged }) => [endedNow, charged]),
    [
      [true, 400n],
      [false, 400n],
      [false, 400n],
    ],
  )
})

test('a hold requested twice while its account is locked is placed once', async (t) => {
  const holds = await openLedger(ledger.database, patient)
  const [stuck, other] = await openPayers()
  const release = await lockAccount(t, stuck)
  const call = holdCall(stuck, 700n)
  const first = holds.place(call)
  await hold(holds, other!, 100n).then((placed) => holds.end(voided(placed)))
  const second = holds.place(call)
  await release()
  assert.deepEqual((await Promise.all([first, second])).map(codeOf), ['held', 'held'])
  await endOpen(holds, first)
  const [account] = await ledger.database.query('select held from accounts where id = $1', [stuck.accountId])
  assert.deepEqual(account, { held: 0n })
})

test('holds of a locked account beyond five hundred are refused, and its ends are not', async (t) => {
  const holds = await openLedger(ledger.database, patient)
  const [stuck, other] = await openPayers()
  const open = await Promise.all(Array.from({ length: 600 }, () => hold(holds, stuck, 1n)))
  const release = await lockAccount(t, stuck)
  const first = place(holds, stuck, 1n)
  await hold(holds, other!, 100n).then((placed) => holds.end(voided(placed)))
  const placing = Array.from({ length: 600 }, () => place(holds, stuck, 1n).catch((error: { code: string }) => error))
  const ending = open.map((placed) => holds.end(voided(placed)))
  // The last calls find the queue full, and are refused while the account is still locked.
  assert.equal(codeOfAny(await placing.at(-1)!), 'overloaded')
  await release()
  assert.ok((await Promise.all(ending)).every(({ endedNow }) => endedNow))
  const decisions = await Promise.all([first, ...placing])
  const placed = decisions.flatMap((decision) => ('hold' in decision ? [decision.hold] : []))
  assert.ok(placed.length >= 512 && placed.length <= 514, `${placed.length} were placed`)
  await Promise.all(placed.map((one) => holds.end(voided(one))))
})

const codeOfAny = (decision: HoldDecision | { readonly code: string }) =>
  'code' in decision ? decision.code : codeOf(decision)

function refusal(payer: Payer) {
  const requestId = createRequestId(payer.partition, Date.now())
  return {
    requestId,
    payer,
    model: 'm',
    stream: false,
    maxTokens: 1,
    errorCode: 'invalid_value' as const,
  }
}

async function endOpen(holds: Holds, placed: ReturnType<typeof place>): Promise<void> {
  const decision = await placed
  if ('hold' in decision) await holds.end(voided(decision.hold))
}
