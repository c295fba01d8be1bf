import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import fc from 'fast-check'
import { assertBooksBalance } from '../../test/support/audit.ts'
import { exampleCount } from '../../test/support/examples.ts'
import {
  cancelledByClient,
  charge,
  codeOf,
  hold,
  holdCall,
  openLedger,
  openPayer,
  place,
  serveAgain,
  settle,
  voided,
} from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { readAccountLog } from '../db/account-log.ts'
import { findAccount, resumeAccount, suspendAccount } from './accounts.ts'
import { adjustAccount, listAdjustments } from './adjustments.ts'
import { freezeLedger, unfreezeLedger } from './freeze.ts'
import type { Payer } from './hold-calls.ts'
import { makePayments } from './payments.ts'
import type { RequestId } from './request-id.ts'

const ledger = ledgerSuite()

function adjust({ partition, accountId }: Payer, amount: bigint, id: string = randomUUID(), requestId?: RequestId) {
  const adjustment = { id, amount, requestId, reason: 'the model was down', madeBy: 'operator' }
  return adjustAccount(ledger.database, { partition, id: accountId }, adjustment)
}

async function accountOf({ partition, accountId }: Payer) {
  return (await findAccount(ledger.database, partition, accountId))!
}

test('a refunded charge can be spent again, and its reason is stored', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 1_000n)
  await holds.end(charge(await hold(holds, payer, 1_000n), 900n))
  assert.equal((await accountOf(payer)).spendable, 100n)
  assert.deepEqual(await adjust(payer, 400n), { decision: 'made', room: 500n })
  assert.deepEqual([(await accountOf(payer)).spendable, (await accountOf(payer)).givenBack], [500n, 400n])
  const [row] = await listAdjustments(ledger.database, payer.accountId, 10)
  assert.deepEqual([row!.amount, row!.reason, row!.madeBy], [400n, 'the model was down', 'operator'])
  await holds.end(charge(await hold(holds, payer, 500n), 500n))
  await assertBooksBalance(ledger.database)
})

// Its age is an alarm of the operator: a refund that waits for later charges is no charge that waits for its payment.
test('refunds that a full payment leaves for the next one do not count as an unpaid charge', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 1_000n)
  await holds.end(charge(await hold(holds, payer, 1_000n), 900n))
  const forced = [{ partition: payer.partition, id: payer.accountId, isForced: true }]
  const pay = (entriesMax: number) => makePayments(ledger.database, forced, 0, { entriesMax, valueMax: 10_000n })
  await settle(ledger.database, [payer], 'completed')
  for (const amount of [100n, 200n, 300n]) await adjust(payer, amount)
  assert.equal(await pay(2), 1)
  const [row] = await ledger.database.query(
    'select covered_entry, covered, unpaid_since from accounts where partition = $1 and id = $2',
    [payer.partition, payer.accountId],
  )
  assert.deepEqual(row, { covered_entry: 3n, covered: 600n, unpaid_since: null })
})

test('an account is refunded at most what it was charged, and at most its refunds are taken back', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 1_000n)
  assert.deepEqual(await adjust(payer, 1n), { decision: 'exceeds_room', room: 0n })
  await holds.end(charge(await hold(holds, payer, 500n), 300n))
  assert.deepEqual(await adjust(payer, 301n), { decision: 'exceeds_room', room: 300n })
  assert.deepEqual(await adjust(payer, -1n), { decision: 'exceeds_room', room: 0n })
  assert.equal((await adjust(payer, 300n)).decision, 'made')
  assert.deepEqual(await adjust(payer, -301n), { decision: 'exceeds_room', room: 300n })
  assert.equal((await adjust(payer, -300n)).decision, 'made')
  assert.equal((await accountOf(payer)).spendable, 700n)
  await assertBooksBalance(ledger.database)
})

test('an adjustment repeated after a lost reply is made once; none is made in a frozen ledger', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 1_000n)
  await holds.end(charge(await hold(holds, payer, 1_000n), 800n))
  const id = randomUUID()
  const decisions = await Promise.all([adjust(payer, 100n, id), adjust(payer, 100n, id), adjust(payer, 100n, id)])
  assert.deepEqual(decisions.map(({ decision }) => decision).sort(), ['made', 'stored', 'stored'])
  assert.equal((await accountOf(payer)).givenBack, 100n)
  await freezeLedger(ledger.database, 'test')
  assert.equal((await adjust(payer, 100n)).decision, 'ledger_frozen')
  await unfreezeLedger(ledger.database)
})

test('a charge is not refunded again when its request is served again', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 1_000n)
  const served = await hold(holds, payer, 500n)
  await holds.end(charge(served, 300n, cancelledByClient))
  await holds.end(charge(await hold(holds, payer, 500n), 200n))
  assert.equal((await adjust(payer, 100n, randomUUID(), served.requestId)).decision, 'made')
  assert.deepEqual(await adjust(payer, 201n, randomUUID(), served.requestId), { decision: 'exceeds_room', room: 200n })
  assert.equal(await serveAgain(ledger.database, holds, payer, [served.requestId, 300n]), 200n)
  const { spendable, givenBack } = await accountOf(payer)
  assert.deepEqual([spendable, givenBack], [500n, 300n], 'the retry and the other request are paid')
  const [row] = await listAdjustments(ledger.database, payer.accountId, 10)
  assert.deepEqual([row!.amount, row!.madeBy, row!.requestId], [200n, 'service', served.requestId])
  await assertBooksBalance(ledger.database)
})

test('a retry refunds at most what it cost itself, and nothing of an attempt that was streamed', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 2_000n)
  for (const [stream, refund] of [
    [false, 120n],
    [true, 0n],
  ] as const) {
    const attempt = await holds.place({ ...holdCall(payer, 500n), stream })
    assert.ok('hold' in attempt)
    await holds.end(charge(attempt.hold, 300n, cancelledByClient))
    assert.equal(await serveAgain(ledger.database, holds, payer, [attempt.hold.requestId, 120n]), refund)
  }
})

test('a refund without a request never exceeds the account’s charges', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 1_000n)
  const served = await hold(holds, payer, 500n)
  await holds.end(charge(served, 300n, cancelledByClient))
  assert.equal((await adjust(payer, 300n)).decision, 'made')
  assert.equal((await accountOf(payer)).spendable, 1_000n)
  await serveAgain(ledger.database, holds, payer, [served.requestId, 300n])
  assert.equal((await accountOf(payer)).spendable, 1_000n)
  await assertBooksBalance(ledger.database)
})

const step = fc.oneof(
  fc.record({ kind: fc.constant('charge' as const), quote: fc.nat(3_000), share: fc.integer({ min: 0, max: 100 }) }),
  fc.record({ kind: fc.constant('void' as const), quote: fc.nat(3_000) }),
  fc.record({
    kind: fc.constant('adjust' as const),
    amount: fc.integer({ min: -3_000, max: 3_000 }),
    request: fc.option(fc.nat(5), { nil: undefined }),
  }),
  fc.record({ kind: fc.constant('serve again' as const), request: fc.nat(5), charged: fc.nat(2_000) }),
)

// The promise behind adjustments: they move revenue, they make none. So an account never has more than was deposited.
test('after any charges, adjustments and retries the ledger balances, and no account can spend more than it deposited', async () => {
  const holds = await openLedger(ledger.database)
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 15 }), async (steps) => {
      const payer = await openPayer(ledger.database, 5_000n)
      const ended: RequestId[] = []
      for (const action of steps) {
        const request = 'request' in action && action.request !== undefined ? ended[action.request] : undefined
        if (action.kind === 'serve again') {
          if (request !== undefined) await serveAgain(ledger.database, holds, payer, [request, BigInt(action.charged)])
          continue
        }
        if (action.kind === 'adjust') {
          if (action.amount !== 0) await adjust(payer, BigInt(action.amount), randomUUID(), request)
          continue
        }
        const decision = await place(holds, payer, BigInt(action.quote))
        if ('refusal' in decision) continue
        const charged = action.kind === 'charge' ? BigInt(Math.floor((action.quote * action.share) / 100)) : 0n
        await holds.end(
          action.kind === 'void' ? voided(decision.hold) : charge(decision.hold, charged, cancelledByClient),
        )
        ended.push(decision.hold.requestId)
      }
      const { spendable, givenBack } = await accountOf(payer)
      assert.ok(spendable >= 0n && spendable <= 5_000n && givenBack >= 0n)
    }),
    { numRuns: exampleCount('ADJUSTMENT_RUNS', { short: 15, full: 60 }) },
  )
  await assertBooksBalance(ledger.database)
})

test('a suspended account gets no new holds, its running requests end, and once resumed it is served again', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 1_000n)
  const account = { partition: payer.partition, id: payer.accountId }
  const open = await hold(holds, payer, 400n)
  await suspendAccount(ledger.database, account, 'abuse')
  const other = await openPayer(ledger.database, 1_000n)
  const decisions = await Promise.all([place(holds, payer, 100n), place(holds, other, 100n)])
  assert.deepEqual(decisions.map(codeOf), ['account_suspended', 'held'])
  assert.equal((await holds.end(charge(open, 300n))).endedNow, true)
  assert.equal((await accountOf(payer)).suspendedReason, 'abuse')
  await resumeAccount(ledger.database, account)
  await resumeAccount(ledger.database, account)
  const log = await readAccountLog(ledger.database, payer, { limit: 10 })
  assert.deepEqual(
    log.map(({ event, actor }) => [event, actor.kind]),
    [
      ['account_resumed', 'operator'],
      ['account_suspended', 'operator'],
    ],
  )
  const resumed = await place(holds, payer, 100n)
  assert.equal(codeOf(resumed), 'held')
  for (const decision of [...decisions, resumed]) if ('hold' in decision) await holds.end(voided(decision.hold))
  await assertBooksBalance(ledger.database)
})
