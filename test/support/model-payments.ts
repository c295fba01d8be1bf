import assert from 'node:assert/strict'
import { randomBytes, randomUUID } from 'node:crypto'
import fc from 'fast-check'
import type { Database } from '../../src/db/database.ts'
import { adjustAccount } from '../../src/ledger/adjustments.ts'
import { closeAccount, reopenAccount } from '../../src/ledger/close-account.ts'
import type { Hold, Payer } from '../../src/ledger/hold-calls.ts'
import type { Holds } from '../../src/ledger/holds.ts'
import {
  advancePayments,
  type DueRules,
  findDueAccounts,
  keepRoots,
  makePayments,
  type Payment,
} from '../../src/ledger/payments.ts'
import { advanceTransfer } from '../../src/ledger/transfers.ts'
import { findWithdrawal, isSettled, requestWithdrawal } from '../../src/ledger/withdrawals.ts'
import { fromAtomic, type Usdc } from '../../src/money/usdc.ts'
import { toHex } from '../../src/receipts/hex.ts'
import { serveAgain, voided } from './ledger.ts'
import type { DueBy, Model, ModelPayment, ModelWithdrawal } from './ledger-model.ts'
import * as model from './ledger-model.ts'

// Steps of the model test that pay, give back, withdraw and close. Each does to the ledger what it does to the model.

export type Real = {
  readonly database: Database
  readonly payer: Payer
  readonly node: string
  readonly holds: Holds
  readonly other: Holds
  readonly open: Map<number, Hold>
  /** Ended requests by their number in the model. */
  readonly ended: Map<number, Hold>
  lastEnded: Hold | undefined
}

export type Step = (model: Model, real: Real) => Promise<void>

/** A step with its name for the report of a failure, and when it can be taken. */
export type NamedStep = { readonly name: string; readonly check: (model: Model) => boolean; readonly run: Step }

const neverMs = 1e12
const limits = { entriesMax: model.rules.entriesMax, valueMax: model.rules.paymentMax }
const neverReached = fromAtomic(10n ** 15n)
const isOpen = ({ isClosed }: Model) => !isClosed
const always = () => true

const adjust = fc
  .record({ amount: fc.integer({ min: -400, max: 800 }), die: fc.nat(1_000), ofRequest: fc.boolean() })
  .filter(({ amount }) => amount !== 0)
  .map(({ amount, die, ofRequest }) =>
    step(`adjust ${amount}${ofRequest ? ` of request ${die}` : ''}`, isOpen, async (m, real) => {
      const request = ofRequest ? m.ended[die % m.ended.length] : undefined
      const made = {
        id: randomUUID(),
        amount: BigInt(amount),
        reason: 'model',
        madeBy: 'test',
        requestId: request && real.ended.get(request.number)!.requestId,
      }
      const account = { partition: real.payer.partition, id: real.payer.accountId }
      const expected = model.expectAdjustment(m, BigInt(amount), request)
      assert.equal((await adjustAccount(real.database, account, made)).decision, expected)
      if (expected === 'made')
        assert.equal((await adjustAccount(real.database, account, made)).decision, 'stored', 'a second time')
    }),
  )

const retry = fc.nat(1_000).map((die) =>
  step(
    `retry ${die}`,
    (m) => isOpen(m) && m.refunds < model.rules.refundsMax && attempts(m).length > 0,
    async (m, real) => {
      const attempt = attempts(m)[die % attempts(m).length]!
      const earlier = real.ended.get(attempt.number)!
      const { holds, payer, database } = real
      const refunded = await serveAgain(database, holds, payer, [earlier.requestId, attempt.charged])
      const isServed = model.expectPlace(m, attempt.charged) === 'held'
      if (isServed) model.expectEnd(m, m.nextRequest, attempt.charged)
      // Nothing of the retry itself is refunded: its hold is not kept.
      if (isServed) m.ended.pop()
      m.nextRequest += 1
      assert.equal(refunded, isServed ? model.expectRefund(m, attempt, attempt.charged) : undefined)
    },
  ),
)

const attempts = ({ ended }: Model) => ended.filter(({ isCancelled, charged }) => isCancelled && charged > 0n)

const dueBy: fc.Arbitrary<DueBy> = fc.oneof(
  fc.integer({ min: 0, max: 3_000 }).map((min) => ({ min: BigInt(min), isLate: false, cap: neverReached })),
  fc.constant({ min: undefined, isLate: true, cap: neverReached }),
  fc.integer({ min: 1, max: 10_000 }).map((cap) => ({ min: undefined, isLate: false, cap: BigInt(cap) })),
  fc.constant({ min: undefined, isLate: false, cap: neverReached }),
)

const pay = dueBy.map((by) =>
  step(`pay what is due by ${by.isLate ? 'age' : `${by.min ?? by.cap}`}`, always, async (m, real) => {
    const { payer, database } = real
    const expected = model.expectDue(m, by)
    const due = (await findDueAccounts(database, rulesOf(by), model.rules.entriesMax)).filter(
      ({ id }) => id === payer.accountId,
    )
    assert.deepEqual(
      due.map(({ isForced }) => (isForced ? 'forced' : 'due')),
      expected === undefined ? [] : [expected],
    )
    if (expected !== undefined) await makeOne(m, real, expected === 'forced')
  }),
)

function rulesOf({ min, isLate, cap }: DueBy): DueRules {
  return {
    afterMs: min === undefined ? neverMs : 0,
    min: (min ?? 0n) as Usdc,
    latestMs: isLate ? 0 : neverMs,
    cap: cap as Usdc,
    max: model.rules.paymentMax as Usdc,
  }
}

/** Makes the next payment, also by two at the same time, and keeps its root as settlement does before it hands it in. */
async function makeOne(m: Model, real: Real, isForced: boolean): Promise<void> {
  const { payer, database } = real
  const due = [{ partition: payer.partition, id: payer.accountId, isForced }]
  const isMade = model.expectPayment(m, isForced)
  const make = () => makePayments(database, due, 0, limits)
  const made = await Promise.all([make(), make()])
  assert.equal(made[0] + made[1], isMade ? 1 : 0)
  if (!isMade) return
  const payment = refTo(m, real, m.payments.at(-1)!) as Payment
  await keepRoots(database, [{ payment, root: toHex(randomBytes(32)), signature: toHex(randomBytes(65)) }])
  await comparePayments(m, real)
}

function refTo(m: Model, { payer }: Real, payment: ModelPayment): Pick<Payment, 'partition' | 'accountId' | 'number'> {
  return { partition: payer.partition, accountId: payer.accountId, number: BigInt(m.payments.indexOf(payment) + 1) }
}

const news = fc.constantFrom('received', 'batched', 'unknown', 'completed', 'completed', 'failed').map((state) =>
  step(
    `payment ${state}`,
    (m) => model.openPayment(m) !== undefined,
    async (m, real) => {
      await tell(m, real, model.openPayment(m)!, state)
      const { partition, accountId } = real.payer
      // A second one beside it would pay the same charges again.
      if (model.openPayment(m) !== undefined)
        assert.equal(await makePayments(real.database, [{ partition, id: accountId, isForced: true }], 0, limits), 0)
      await comparePayments(m, real)
    },
  ),
)

async function tell(m: Model, real: Real, payment: ModelPayment, state: ModelPayment['state']): Promise<void> {
  const isNews = payment.state !== 'completed' && payment.state !== 'failed'
  const changed = await advancePayments(real.database, [{ payment: refTo(m, real, payment), state }])
  assert.equal(changed, isNews ? 1 : 0)
  if (!isNews) return
  model.expectNews(m, payment, state)
  // However slow the machine is, the ten seconds until it is tried again are over when the step "time passes" says so.
  if (state === 'failed') await shiftFailed(real, '1 hour')
}

const oldNews = fc
  .record({ die: fc.nat(1_000), state: fc.constantFrom('unknown', 'completed', 'failed') })
  .map(({ die, state }) =>
    step(
      `old news ${die} ${state}`,
      (m) => finals(m).length > 0,
      async (m, real) => {
        await tell(m, real, finals(m)[die % finals(m).length]!, state as ModelPayment['state'])
      },
    ),
  )

const finals = ({ payments }: Model) => payments.filter(({ state }) => state === 'completed' || state === 'failed')

const timePasses = fc.constant(
  step(
    'time passes',
    (m) => m.payments.at(-1)?.isRecent === true,
    async (m, real) => {
      await shiftFailed(real, '-2 hours')
      for (const payment of m.payments) payment.isRecent = false
    },
  ),
)

async function shiftFailed({ database, payer }: Real, by: string): Promise<void> {
  const { partition, accountId } = payer
  const [failed] = await database.query<{ number: bigint; at: Date }>(
    `select p.number, p.changed_at + $3::interval as at from payments p join accounts a on a.partition = $1 and a.id = $2
      where p.partition = $1 and p.account_id = $2 and p.state = 'failed' and p.number = a.payments`,
    [partition, accountId, by],
  )
  if (failed === undefined) return
  await database.query('update payments set changed_at = $4 where partition = $1 and account_id = $2 and number = $3', [
    partition,
    accountId,
    failed.number,
    failed.at,
  ])
}

const withdraw = fc
  .oneof(
    { weight: 6, arbitrary: fc.integer({ min: 1, max: 2_000 }) },
    { weight: 1, arbitrary: fc.constant('all' as const) },
  )
  .map((amount) =>
    step(`withdraw ${amount}`, isOpen, (m, real) =>
      order(m, real, amount === 'all' ? model.spendable(m) : BigInt(amount)),
    ),
  )

async function order(m: Model, { database, payer }: Real, amount: bigint): Promise<void> {
  if (amount <= 0n) return
  const { partition, accountId } = payer
  const id = randomUUID()
  const [recipient, min] = [`0x${'9'.repeat(40)}`, fromAtomic(model.rules.withdrawalMin)]
  const call = { partition, accountId, id, amount: fromAtomic(amount), recipient, min }
  const decision = await requestWithdrawal(database, call).then(
    ({ state }) => state,
    (error: Error) => error.constructor.name,
  )
  const expected = model.expectWithdrawal(m, id, amount)
  assert.equal(decision, expected)
  if (expected === 'requested') assert.equal((await requestWithdrawal(database, call)).id, id, 'a second time')
}

const withdrawalMoves = fc
  .record({ die: fc.nat(1_000), fails: fc.boolean(), fee: fc.option(fc.nat(40), { nil: undefined }) })
  .map(({ die, fails, fee }) =>
    step(
      `withdrawal ${die} ${fails ? 'fails' : 'moves on'}`,
      (m) => model.openWithdrawals(m).length > 0,
      async (m, real) => {
        const open = model.openWithdrawals(m)
        await move(m, real, open[die % open.length]!, {
          fails: fails && die % 2 === 0,
          fee: fee === undefined ? undefined : BigInt(fee),
        })
      },
    ),
  )

/** Takes a withdrawal one step on, as settlement does. */
async function move(
  m: Model,
  real: Real,
  withdrawal: ModelWithdrawal,
  end: { readonly fails: boolean; readonly fee: bigint | undefined },
): Promise<void> {
  const { partition, accountId } = real.payer
  const { database } = real
  const stored = (await findWithdrawal(database, partition, accountId, withdrawal.id))!
  assert.deepEqual([stored.state, stored.afterEntry], [withdrawal.state, BigInt(withdrawal.afterEntry)])
  if (end.fails) {
    assert.equal(await advanceTransfer(database, stored, { state: 'failed', reason: 'model' }), true)
    model.expectReturned(m, withdrawal)
  } else if (withdrawal.state === 'requested') {
    const isReady = await isSettled(database, stored)
    assert.equal(isReady, model.expectSettled(m, withdrawal))
    if (!isReady) return
    assert.equal(await advanceTransfer(database, stored, { state: 'sent' }), true)
    withdrawal.state = 'sent'
    assert.ok(model.isCoveredOnChain(m), 'the gateway has what is withdrawn')
  } else {
    assert.equal(await advanceTransfer(database, stored, { state: 'confirmed', fee: end.fee }), true)
    model.expectPaidOut(m, withdrawal, end.fee ?? model.rules.withdrawalFeeMax)
  }
  assert.equal(await advanceTransfer(database, stored, { state: 'failed' }), false, 'decided from what is no longer so')
}

const close = fc.constant(step('close', isOpen, tryToClose))

async function tryToClose(m: Model, { database, payer }: Real): Promise<void> {
  const { partition, accountId } = payer
  const decision = await database
    .transaction((connection) => closeAccount(connection, { partition, accountId }, fromAtomic(1n)))
    .then(
      () => 'closed',
      (error: Error & { code?: string }) => error.code,
    )
  assert.equal(decision, model.expectClosing(m) ? 'closed' : 'account_not_closable')
}

// With one in five of its chances: it ends what the other steps have built.
const leave = fc.nat(4).map((die) =>
  step(
    'leave',
    (m) => isOpen(m) && die === 0,
    async (m, real) => {
      await voidAll(m, real)
      await order(m, real, model.spendable(m))
      await settleAll(m, real)
      await tryToClose(m, real)
    },
  ),
)

const reopen = fc.constant(
  step(
    'reopen',
    (m) => m.isClosed,
    async (m, real) => {
      const { partition, accountId } = real.payer
      assert.equal(await reopenAccount(real.database, { partition, accountId }), true)
      m.isClosed = false
    },
  ),
)

/** Ends a run: nothing is open, and the chain has what was charged, to the unit. */
export async function settleAll(m: Model, real: Real): Promise<void> {
  while (model.coveredEntry(m) < m.entries.length || model.openPayment(m) !== undefined) {
    const open = model.openPayment(m)
    if (open === undefined) await makeOne(m, real, true)
    else await tell(m, real, open, 'completed')
  }
  for (const withdrawal of model.openWithdrawals(m))
    while (withdrawal.state !== 'confirmed') await move(m, real, withdrawal, { fails: false, fee: undefined })
  await comparePayments(m, real)
  assert.equal(model.unsettled(m), 0n)
  assert.equal(m.onChain, m.gateway + m.credit + model.held(m))
}

export async function voidAll(m: Model, real: Real): Promise<void> {
  for (const [number, hold] of [...real.open]) {
    await real.other.end(voided(hold))
    model.expectEnd(m, number, undefined)
    real.open.delete(number)
  }
}

/** The ledger's numbers are those of the model, and the model's chain holds what the ledger owes. */
export async function compareAccount(m: Model, { database, payer }: Real): Promise<void> {
  const [row] = await database.query<Record<string, bigint | boolean>>(
    `select gateway, credit, held, gateway + credit - extended as spendable, charged, given_back, withdrawn, entries, payments, covered,
            covered_entry, paid, unpaid_since is not null as is_unpaid, closed_at is not null as is_closed
       from accounts where partition = $1 and id = $2`,
    [payer.partition, payer.accountId],
  )
  assert.deepEqual(row, {
    gateway: m.gateway,
    credit: m.credit,
    held: model.held(m),
    spendable: model.spendable(m),
    charged: m.charged,
    given_back: m.givenBack,
    withdrawn: m.withdrawn,
    entries: BigInt(m.entries.length),
    payments: BigInt(m.payments.length),
    covered: model.covered(m),
    covered_entry: BigInt(model.coveredEntry(m)),
    paid: model.paid(m),
    is_unpaid: m.isUnpaid,
    is_closed: m.isClosed,
  })
  assert.equal(model.owedOnChain(m), m.onChain)
}

async function comparePayments(m: Model, { database, payer }: Real): Promise<void> {
  const rows = await database.query<{ number: bigint; root: Buffer; previous_root: Buffer | null }>(
    `select number, first_entry, last_entry, value, state, root, previous_root from payments
      where partition = $1 and account_id = $2 order by number`,
    [payer.partition, payer.accountId],
  )
  assert.deepEqual(
    rows.map(({ root, previous_root, ...row }) => row),
    m.payments.map(({ first, last, value, state }, index) => ({
      number: BigInt(index + 1),
      first_entry: BigInt(first),
      last_entry: BigInt(last),
      value,
      state,
    })),
  )
  // Each is chained to the last one before it that did not fail.
  for (const [index, { previous_root: previous }] of rows.entries()) {
    const before = rows[m.payments.findLastIndex(({ state }, at) => at < index && state !== 'failed')]
    assert.deepEqual(previous, before?.root ?? null)
  }
}

/** How often what the model is about has happened, over all runs. */
export async function countEvents(database: Database): Promise<Readonly<Record<string, number>>> {
  // One table at a time: a cluster does not count several in one statement.
  const statements = [
    `select count(*) filter (where state = 'completed' and value > 0)::int as paid,
            count(*) filter (where state = 'completed' and value < 0)::int as "paid back",
            count(*) filter (where state = 'completed' and value = 0)::int as "closed at zero",
            count(*) filter (where state = 'failed')::int as failed,
            count(*) filter (where last_entry - first_entry + 1 = ${model.rules.entriesMax})::int as full,
            count(*) filter (where value > ${model.rules.paymentMax} / 2
                               and last_entry - first_entry + 1 < ${model.rules.entriesMax})::int as large
       from payments`,
    `select count(*) filter (where kind = 'refund')::int as refunds,
            count(*) filter (where kind = 'adjustment' and amount > 0)::int as "given back",
            count(*) filter (where kind = 'adjustment' and amount < 0)::int as "taken back" from adjustments`,
    `select count(*) filter (where state = 'confirmed')::int as withdrawn,
            count(*) filter (where state = 'failed')::int as "withdrawals failed" from transfers where kind = 'withdrawal'`,
    `select count(*)::int as closed from accounts where name like 'Account %'`,
  ]
  const rows = await Promise.all(statements.map((statement) => database.query<Record<string, number>>(statement)))
  return Object.assign({}, ...rows.flat())
}

function step(name: string, check: NamedStep['check'], run: Step): NamedStep {
  return { name, check, run }
}

/** Steps beside those of holds, the frequent ones more than once. */
export const paymentSteps: readonly fc.Arbitrary<NamedStep>[] = [
  adjust,
  adjust,
  retry,
  pay,
  pay,
  news,
  news,
  oldNews,
  timePasses,
  withdraw,
  withdrawalMoves,
  withdrawalMoves,
  close,
  leave,
  reopen,
  reopen,
  reopen,
]
