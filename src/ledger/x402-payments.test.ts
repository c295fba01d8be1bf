import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { assertBooksBalance } from '../../test/support/audit.ts'
import { earlier } from '../../test/support/earlier.ts'
import { charge, hold, openLedger, place, voided } from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { newWallet, payFor, placePaid, signedPayment, tellPayment } from '../../test/support/wallet-payments.ts'
import type { ServiceError } from '../errors.ts'
import { revokeAccess } from '../identity/revoke-access.ts'
import { fromAtomic, zero } from '../money/usdc.ts'
import { findAccount } from './accounts.ts'
import { adjustAccount } from './adjustments.ts'
import { closeAccount, reopenAccount } from './close-account.ts'
import type { HoldDecision } from './hold-calls.ts'
import { advancePayments, findPaymentsToSubmit, makePayments } from './payments.ts'
import { requestRefund } from './refunds.ts'
import { createRequestId } from './request-id.ts'
import { advanceTransfer, findDueTransfers } from './transfers.ts'
import type { X402Wallet } from './wallet-accounts.ts'
import { requestWithdrawal } from './withdrawals.ts'
import { acceptedPayment, claimPayment, creditPayment, deleteRefusedPayment } from './x402-payments.ts'

const ledger = ledgerSuite()

function heldOf(decision: HoldDecision | string) {
  assert.ok(typeof decision !== 'string' && 'hold' in decision)
  return decision.hold
}

async function accountOf({ partition, accountId }: X402Wallet) {
  const account = await findAccount(ledger.database, partition, accountId)
  return (
    account && { credit: account.credit, held: account.held, gateway: account.gateway, deposited: account.deposited }
  )
}

test('a payment opens the account, pays its request, and leaves the unused part as credit for the next one', async () => {
  const holds = await openLedger(ledger.database)
  const wallet = await newWallet(ledger.database)
  assert.equal(await accountOf(wallet), undefined)
  const first = signedPayment(wallet, 1_000n)
  const placed = heldOf(await payFor(ledger.database, holds, first, 1_000n))
  assert.deepEqual([placed.fromCredit, placed.authorized], [1_000n, 0n])
  await assertBooksBalance(ledger.database)
  await holds.end(charge(placed, 300n))
  assert.deepEqual(await accountOf(wallet), { credit: 700n, held: 0n, gateway: 0n, deposited: 1_000n })
  assert.equal(await tellPayment(ledger.database, first, 'batched'), 1)
  assert.equal(await tellPayment(ledger.database, first, 'confirmed'), 1)
  assert.equal(await tellPayment(ledger.database, first, 'confirmed'), 0)
  await assertBooksBalance(ledger.database)
  // Asked for 300 only: credit covers the rest.
  const second = heldOf(await payFor(ledger.database, holds, signedPayment(wallet, 300n), 1_000n))
  assert.equal((await accountOf(wallet))!.credit, 0n)
  await holds.end(voided(second))
  assert.equal((await accountOf(wallet))!.credit, 1_000n)
  // Credit alone is enough now.
  await holds.end(charge(await hold(holds, wallet, 900n), 900n))
  await assertBooksBalance(ledger.database)
})

test('a payment over entries of a wallet signs them and moves nothing, whatever it was charged', async () => {
  const holds = await openLedger(ledger.database)
  const wallet = await newWallet(ledger.database)
  await holds.end(charge(heldOf(await payFor(ledger.database, holds, signedPayment(wallet, 50n), 50n)), 50n))
  await adjustAccount(
    ledger.database,
    { partition: wallet.partition, id: wallet.accountId },
    {
      id: randomUUID(),
      amount: 20n,
      requestId: undefined,
      reason: 'test',
      madeBy: 'operator',
    },
  )
  const due = [{ partition: wallet.partition, id: wallet.accountId, isForced: true }]
  const limits = { entriesMax: 10, valueMax: 1_000n }
  assert.deepEqual(
    [await makePayments(ledger.database, due, 0, limits), await makePayments(ledger.database, due, 0, limits)],
    [1, 0],
  )
  await assertBooksBalance(ledger.database)
  const [payment] = await findPaymentsToSubmit(ledger.database, 10)
  assert.deepEqual(
    [payment!.value, payment!.lastEntry, payment!.isPrepaid, payment!.address],
    [30n, 2n, true, wallet.address],
  )
  await advancePayments(ledger.database, [{ payment: payment!, state: 'completed' }])
  assert.deepEqual(await accountOf(wallet), { credit: 20n, held: 0n, gateway: 0n, deposited: 50n })
  // Nor does one whose entries add up to nothing wait for later charges.
  await holds.end(voided(await hold(holds, wallet, 10n)))
  assert.equal(await makePayments(ledger.database, [{ ...due[0]!, isForced: false }], 0, limits), 1)
  await assert.rejects(
    requestWithdrawal(ledger.database, {
      partition: wallet.partition,
      accountId: wallet.accountId,
      id: randomUUID(),
      amount: fromAtomic(20n),
      recipient: wallet.address,
      min: fromAtomic(1n),
    }),
    /refund/,
  )
  await assertBooksBalance(ledger.database)
})

test('of a hundred requests with one payment, one is served and no other holds anything', async () => {
  const holds = await openLedger(ledger.database)
  const wallet = await newWallet(ledger.database)
  const payment = signedPayment(wallet, 100n)
  const claims = await Promise.all(
    Array.from({ length: 100 }, () =>
      claimPayment(ledger.database, { ...payment, requestId: createRequestId(wallet.partition, Date.now()) }),
    ),
  )
  assert.equal(claims.filter((claim) => claim === 'claimed').length, 1)
  assert.equal(claims.filter((claim) => claim === 'taken').length, 99)
  const [row] = await ledger.database.query<{ request_id: typeof payment.requestId }>(
    'select request_id from transfers where counterparty = $1',
    [wallet.address],
  )
  const own = { ...payment, requestId: row!.request_id }
  // Its reply is lost, and it asks again: the same hold.
  const decisions = await Promise.all([1, 2, 3].map(() => placePaid(ledger.database, holds, own, 100n)))
  const [placed] = decisions.map(heldOf)
  // Other requests that got this far by mistake hold nothing.
  assert.equal(await placePaid(ledger.database, holds, signedPayment(wallet, 100n), 100n), 'used')
  assert.equal(
    await placePaid(ledger.database, holds, { ...own, requestId: createRequestId(wallet.partition, Date.now()) }, 1n),
    'used',
  )
  assert.equal(
    await claimPayment(ledger.database, { ...payment, requestId: createRequestId(wallet.partition, Date.now()) }),
    'used',
  )
  assert.deepEqual(await accountOf(wallet), { credit: 0n, held: 100n, gateway: 0n, deposited: 100n })
  await holds.end(voided(placed!))
  await assertBooksBalance(ledger.database)
})

test('a payment whose hold is refused is credit; one that the gateway refused leaves nothing', async () => {
  const holds = await openLedger(ledger.database, { cap: '0.000200' })
  const wallet = await newWallet(ledger.database)
  const decision = await payFor(ledger.database, holds, signedPayment(wallet, 300n), 300n)
  assert.ok(typeof decision !== 'string' && 'refusal' in decision)
  assert.equal(decision.refusal.code, 'quote_exceeds_cap')
  assert.equal((await accountOf(wallet))!.credit, 300n)
  const refused = signedPayment(wallet, 5n)
  assert.equal(await claimPayment(ledger.database, refused), 'claimed')
  await deleteRefusedPayment(ledger.database, refused)
  assert.equal(await claimPayment(ledger.database, refused), 'claimed')
  // The payment's request died, but the gateway has accepted it.
  const accepted = acceptedPayment(refused, 'transfer-x')
  assert.deepEqual(
    [await creditPayment(ledger.database, wallet, accepted), await creditPayment(ledger.database, wallet, accepted)],
    [true, false],
  )
  assert.equal((await accountOf(wallet))!.credit, 305n)
  await assertBooksBalance(ledger.database)
})

test('a payment that fails after it was accepted is taken back; what was spent of it suspends the account', async () => {
  const holds = await openLedger(ledger.database)
  const wallet = await newWallet(ledger.database)
  const unspent = signedPayment(wallet, 100n)
  await holds.end(voided(heldOf(await payFor(ledger.database, holds, unspent, 100n))))
  assert.equal(await tellPayment(ledger.database, unspent, 'failed'), 1)
  assert.deepEqual(await accountOf(wallet), { credit: 0n, held: 0n, gateway: 0n, deposited: 0n })
  await assertBooksBalance(ledger.database)
  const spent = signedPayment(wallet, 100n)
  await holds.end(charge(heldOf(await payFor(ledger.database, holds, spent, 100n)), 80n))
  assert.equal(await tellPayment(ledger.database, spent, 'failed'), 1)
  assert.equal((await accountOf(wallet))!.credit, 0n)
  const [row] = await ledger.database.query<{ lost: bigint }>(
    'select lost from accounts where wallet = $1 and lost > 0',
    [wallet.address],
  )
  assert.equal(row!.lost, 80n)
  const again = await payFor(ledger.database, holds, signedPayment(wallet, 10n), 10n)
  assert.ok(typeof again !== 'string' && 'refusal' in again && again.refusal.code === 'account_suspended')
  await assertBooksBalance(ledger.database)
})

test('unused credit is paid back once, and never what open requests hold', async () => {
  const holds = await openLedger(ledger.database)
  const wallet = await newWallet(ledger.database)
  const { partition, accountId } = wallet
  await assert.rejects(
    requestRefund(ledger.database, {
      partition,
      accountId,
      id: randomUUID(),
      amount: undefined,
      min: fromAtomic(1n),
      transferGas: zero,
    }),
    { code: 'invalid_value', message: /no credit here that can be paid back/ },
  )
  const payment = signedPayment(wallet, 1_000n)
  const open = heldOf(await payFor(ledger.database, holds, payment, 600n))
  await tellPayment(ledger.database, payment, 'confirmed')
  await assert.rejects(
    requestRefund(ledger.database, {
      partition,
      accountId,
      id: randomUUID(),
      amount: fromAtomic(401n),
      min: fromAtomic(1n),
      transferGas: zero,
    }),
    { code: 'insufficient_balance' },
  )
  // Ten refunds of everything race with ten holds: each unit goes one way.
  const outcomes = await Promise.all(
    Array.from({ length: 10 }, async (_, index) => {
      const refund = requestRefund(ledger.database, {
        partition,
        accountId,
        id: randomUUID(),
        amount: undefined,
        min: fromAtomic(1n),
        transferGas: zero,
      }).then(
        ({ amount }) => amount as bigint,
        () => 0n,
      )
      const decision = await place(holds, wallet, BigInt(50 + index))
      if ('hold' in decision) await holds.end(charge(decision.hold, 7n))
      return { refunded: await refund, charged: 'hold' in decision ? 7n : 0n }
    }),
  )
  const refunded = outcomes.reduce((sum, outcome) => sum + outcome.refunded, 0n)
  const charged = outcomes.reduce((sum, outcome) => sum + outcome.charged, 0n)
  assert.equal((await accountOf(wallet))!.credit, 400n - refunded - charged)
  await assertBooksBalance(ledger.database)
  const refunds = await findDueTransfers(ledger.database, 'refund', 100)
  const own = refunds.filter((refund) => refund.accountId === accountId)
  assert.deepEqual(
    own.map(({ counterparty }) => counterparty),
    own.map(() => wallet.address),
  )
  assert.equal(new Set(own.map(({ sequence }) => sequence)).size, own.length)
  for (const [index, refund] of own.entries()) {
    await advanceTransfer(ledger.database, refund, { state: index === 0 ? 'failed' : 'confirmed' })
    await assertBooksBalance(ledger.database)
  }
  await holds.end(charge(open, 600n))
})

test('a refund below the minimum is all unused credit, and paid once in 24 hours; the refusal names both numbers', async () => {
  const { database } = ledger
  const holds = await openLedger(database)
  const wallet = await newWallet(database)
  const { partition, accountId } = wallet
  const pay = async (value: bigint) =>
    holds.end(voided(heldOf(await payFor(database, holds, signedPayment(wallet, value), value))))
  const refund = (amount?: bigint, id = randomUUID()) =>
    requestRefund(database, {
      partition,
      accountId,
      id,
      amount: amount === undefined ? undefined : fromAtomic(amount),
      min: fromAtomic(100_000n),
      transferGas: zero,
    })
  const openCount = async () =>
    (await findDueTransfers(database, 'refund', 100)).filter((each) => each.accountId === accountId)
  await pay(150_000n)
  // Unlimited refunds of one unit would be unlimited gas of the relayer.
  for (const amount of [1n, 99_999n]) await assert.rejects(refund(amount), { code: 'invalid_value' })
  await assert.rejects(refund(1n), {
    message: '0.000001 USDC cannot be refunded: the minimum is 0.1 USDC, or everything that is left (0.15 USDC).',
  })
  assert.deepEqual(await openCount(), [])
  assert.equal((await accountOf(wallet))!.credit, 150_000n)
  await refund(100_000n)
  const id = randomUUID()
  assert.equal((await refund(undefined, id)).amount, 50_000n)
  await pay(20_000n)
  for (const amount of [undefined, 20_000n]) {
    await assert.rejects(
      refund(amount),
      /: 0\.02 USDC cannot be refunded yet: less than 0\.1 USDC can be refunded once in 24 hours, next at 20\d\d-/,
    )
  }
  assert.equal((await refund(undefined, id)).amount, 50_000n, 'the same refund again')
  // The limit is for small ones.
  await pay(80_000n)
  const [, small] = await openCount()
  await refund(100_000n)
  await pay(10_000n)
  await assert.rejects(refund(), { code: 'rate_limited' }, 'three are open')
  await advanceTransfer(database, small!, { state: 'confirmed' })
  await assert.rejects(refund(), { code: 'invalid_value' })
  await database.query(
    `update transfers set ${earlier('created_at', "interval '24 hours'")} where partition = $1 and account_id = $2 and kind = 'refund'`,
    [partition, accountId],
  )
  assert.equal((await refund()).amount, 10_000n)
  await assertBooksBalance(database)
})

// Payment and refund are each a row on chain that the relayer pays, and the wallet has its money back.
// The signer would refuse it, and the refund would fail however often it is requested.
test('more credit than the signer signs in an hour is refunded in parts, and the refusal says so', async () => {
  const { database } = ledger
  const holds = await openLedger(database)
  const wallet = await newWallet(database)
  const { partition, accountId } = wallet
  const payment = signedPayment(wallet, 1_500_000_000n)
  await holds.end(voided(heldOf(await payFor(database, holds, payment, 100n))))
  await tellPayment(database, payment, 'confirmed')
  const refund = (amount: bigint | undefined) =>
    requestRefund(database, {
      partition,
      accountId,
      id: randomUUID(),
      amount: amount === undefined ? undefined : fromAtomic(amount),
      min: fromAtomic(1n),
      transferGas: zero,
    })
  const refusal = /1500 USDC cannot be refunded in one go: the maximum is 1000 USDC\. Refund it in parts with amount\.$/
  await assert.rejects(refund(undefined), refusal)
  await assert.rejects(refund(1_000_000_001n), /1000\.000001 USDC cannot be refunded in one go/)
  assert.equal((await accountOf(wallet))!.credit, 1_500_000_000n)
  assert.equal((await refund(1_000_000_000n)).amount, 1_000_000_000n)
  assert.equal((await refund(undefined)).amount, 500_000_000n)
  await assertBooksBalance(database)
})

test('a wallet is refunded ten times in 24 hours, whatever the amounts; the refusal says when again', async () => {
  const { database } = ledger
  const holds = await openLedger(database)
  const wallet = await newWallet(database)
  const { partition, accountId } = wallet
  const pay = async () => {
    const payment = signedPayment(wallet, 500_000n)
    await holds.end(voided(heldOf(await payFor(database, holds, payment, 500_000n))))
    await tellPayment(database, payment, 'confirmed')
  }
  const refund = (id: string = randomUUID()) =>
    requestRefund(database, {
      partition,
      accountId,
      id,
      amount: undefined,
      min: fromAtomic(100_000n),
      transferGas: zero,
    })
  const ids: string[] = []
  for (let count = 0; count < 11; count += 1) {
    await pay()
    const made = await refund()
    ids.push(made.id)
    await advanceTransfer(database, made, { state: count === 0 ? 'failed' : 'confirmed' })
  }
  await pay()
  await assert.rejects(refund(), (error: ServiceError) => {
    const [, at] = /^This wallet was refunded 10 times .* possible at (20\d\d-[^ ]+)\. /.exec(error.message) ?? []
    const waitMs = Date.parse(at!) - Date.now()
    return error.code === 'invalid_value' && waitMs > 23.9 * 3_600_000 && waitMs <= 24 * 3_600_000
  })
  assert.equal((await refund(ids[5])).amount, 500_000n, 'the same refund again')
  assert.equal((await accountOf(wallet))!.credit, 500_000n)
  await database.query(
    `update transfers set ${earlier('created_at', "interval '24 hours'")} where partition = $1 and id = $2`,
    [partition, ids[1]],
  )
  assert.equal((await refund()).amount, 500_000n)
  await assertBooksBalance(database)
})

test('a payment that is accepted while its account is closed is credit, which is paid back; reopened, the wallet pays again', async () => {
  const holds = await openLedger(ledger.database)
  const wallet = await newWallet(ledger.database)
  const { partition, accountId } = wallet
  await holds.end(charge(heldOf(await payFor(ledger.database, holds, signedPayment(wallet, 100n), 100n)), 100n))
  const late = signedPayment(wallet, 70n)
  assert.equal(await claimPayment(ledger.database, late), 'claimed')
  await ledger.database.transaction(async (connection) => {
    await closeAccount(connection, wallet, fromAtomic(0n))
    await revokeAccess(connection, wallet)
  })
  const decision = await placePaid(ledger.database, holds, late, 70n)
  assert.ok(typeof decision !== 'string' && 'refusal' in decision && decision.refusal.code === 'api_key_revoked')
  assert.equal((await accountOf(wallet))!.credit, 70n)
  const refund = await requestRefund(ledger.database, {
    partition,
    accountId,
    id: randomUUID(),
    amount: undefined,
    min: fromAtomic(1n),
    transferGas: zero,
  })
  assert.deepEqual([refund.amount, refund.counterparty], [70n, wallet.address])
  await advanceTransfer(ledger.database, refund, { state: 'confirmed' })
  await assertBooksBalance(ledger.database)
  const reopen = () => ledger.database.transaction((connection) => reopenAccount(connection, wallet))
  assert.deepEqual([await reopen(), await reopen()], [true, false])
  await holds.end(charge(heldOf(await payFor(ledger.database, holds, signedPayment(wallet, 50n), 50n)), 20n))
  assert.equal((await accountOf(wallet))!.credit, 30n)
  await assertBooksBalance(ledger.database)
})

test('webhooks report payments of a wallet and each step of a refund', async () => {
  const holds = await openLedger(ledger.database)
  const wallet = await newWallet(ledger.database)
  const { partition, accountId } = wallet
  await holds.end(charge(heldOf(await payFor(ledger.database, holds, signedPayment(wallet, 100n), 100n)), 40n))
  await ledger.database.query(
    `update accounts set event_types = '{deposit.credited,withdrawal.updated}' where partition = $1 and id = $2`,
    [partition, accountId],
  )
  await holds.end(voided(heldOf(await payFor(ledger.database, holds, signedPayment(wallet, 30n), 30n))))
  const id = randomUUID()
  for (let time = 0; time < 2; time += 1)
    await requestRefund(ledger.database, {
      partition,
      accountId,
      id,
      amount: fromAtomic(90n),
      min: fromAtomic(1n),
      transferGas: zero,
    })
  const [refund] = (await findDueTransfers(ledger.database, 'refund', 100)).filter((each) => each.id === id)
  await advanceTransfer(ledger.database, refund!, { state: 'sent' })
  await advanceTransfer(ledger.database, { ...refund!, attempts: 1 }, { state: 'confirmed' })
  const events = await ledger.database.query<{ type: string; data: Record<string, string> }>(
    'select type, data from events where account_id = $1 order by number',
    [accountId],
  )
  assert.deepEqual(
    events.map(({ type, data }) => [type, data.state ?? data.source, data.amount_atomic]),
    [
      ['deposit.credited', 'x402', '30'],
      ['withdrawal.updated', 'requested', '90'],
      ['withdrawal.updated', 'sent', '90'],
      ['withdrawal.updated', 'confirmed', '90'],
    ],
  )
})
