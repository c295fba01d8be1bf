import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import type { Connection } from '../../src/db/database.ts'
import { findViolations } from '../../src/ledger/audit.ts'
import { closeAccount } from '../../src/ledger/close-account.ts'
import { type DueRules, makeDuePayments } from '../../src/ledger/payments.ts'
import { findWithdrawal } from '../../src/ledger/withdrawals.ts'
import { fromAtomic } from '../../src/money/usdc.ts'
import { paymentEntriesMax } from '../../src/receipts/payment.ts'
import type { Chain } from '../../src/settlement/chain.ts'
import { confirmPayments } from '../../src/settlement/confirm.ts'
import { checkSolvency, isSolvent } from '../../src/settlement/solvency.ts'
import { submitPayments } from '../../src/settlement/submit.ts'
import { advanceTransfers } from '../../src/settlement/transfers/machine.ts'
import type { Address } from '../../src/signer/address.ts'
import { charge, hold, voided } from '../support/ledger.ts'
import {
  accountOf,
  adjust,
  assertSettled,
  type BenchAccount,
  passTime,
  pay,
  paymentsOf,
  settleAll,
  settlementSuite,
  settleOnce,
  unsettledOf,
} from '../support/settlement-bench.ts'
import { limits, ownerAddress, terms } from '../support/signing.ts'

// What was charged is paid on chain, net, per account: one payment for a range of entries, at most one under way.

const bench = settlementSuite()

async function openOwned(atomic: bigint): Promise<BenchAccount> {
  const account = await bench.openAccount(atomic)
  await bench.funds.registerOwner(account, ownerAddress, true)
  return account
}

/** Voids that many requests of the account, a hundred at a time. */
async function voidMany(account: BenchAccount, count: number): Promise<void> {
  for (let done = 0; done < count; done += 128) {
    const some = Array.from({ length: Math.min(128, count - done) }, async () => {
      await bench.holds.end(voided(await hold(bench.holds, account, 10n)))
    })
    await Promise.all(some)
  }
}

async function assertSolvent(when: string): Promise<void> {
  const { database, gateway } = bench
  const chain = {
    finalBlock: async () => 1n,
    gatewayBalances: async (depositors: readonly Address[]) => depositors.map((one) => gateway.balance(one)),
  } as unknown as Chain
  const report = await checkSolvency({ database, chain, seller: terms.seller })
  assert.ok(isSolvent(report), `${when}: ${JSON.stringify(report)}`)
  assert.deepEqual(await findViolations(database), [], when)
}

test('what ends while a payment is under way is in the next one, each charge once', async () => {
  const account = await bench.openAccount(1_000_000n)
  let charged = 0n
  const serve = async (amount: bigint) => {
    await pay(bench, account, 1_000n, amount)
    charged += amount
  }
  await serve(100n)
  await settleOnce(bench)
  for (let round = 0; round < 5; round += 1) {
    await Promise.all(Array.from({ length: 7 }, (_, index) => serve(BigInt(round * 10 + index))))
    await settleOnce(bench)
    await settleOnce(bench)
  }
  assert.deepEqual(await paymentsOf(bench, account), [['received', 1n, 1n, 100n]], 'one at a time')
  bench.gateway.batch()
  await passTime(bench)
  await settleOnce(bench)
  await settleOnce(bench)
  assert.deepEqual(await paymentsOf(bench, account), [
    ['completed', 1n, 1n, 100n],
    ['received', 2n, 36n, charged - 100n],
  ])
  await settleAll(bench)
  await assertSettled(bench, [account])
  assert.equal(bench.gateway.balance(account.address), 1_000_000n - charged)
})

const rules: DueRules = {
  afterMs: 60_000,
  min: fromAtomic(500n),
  latestMs: 3_600_000,
  cap: fromAtomic(10_000n),
  max: fromAtomic(limits.authorizationMax),
}

/** Makes the payments that are due by these rules, of charges that are so old; tells whether the account has one. */
async function isDue(account: BenchAccount, ageMs: number): Promise<boolean> {
  const { database } = bench
  await database.query(
    `update accounts set unpaid_since = now() - $2 * interval '1 millisecond' where id = $1 and unpaid_since is not null`,
    [account.id, ageMs],
  )
  await makeDuePayments(database, rules, 0)
  return (await paymentsOf(bench, account)).some(([state]) => state === 'submitted')
}

for (const { title, charged, ageMs, due } of [
  { title: 'old enough and worth enough', charged: 500n, ageMs: 61_000, due: true },
  { title: 'old enough, worth one unit too little', charged: 499n, ageMs: 61_000, due: false },
  { title: 'worth enough, too young', charged: 500n, ageMs: 30_000, due: false },
  { title: 'so old that its worth does not count', charged: 1n, ageMs: 3_601_000, due: true },
  { title: 'old, worth little, not yet the latest', charged: 1n, ageMs: 3_570_000, due: false },
  { title: 'half of the cap, new', charged: 5_000n, ageMs: 0, due: true },
  { title: 'one unit below half of the cap, new', charged: 4_999n, ageMs: 0, due: false },
] as const) {
  test(`a charge that is ${title} is ${due ? 'paid' : 'not paid yet'}`, async () => {
    const account = await bench.openAccount(20_000n)
    await pay(bench, account, 6_000n, charged)
    assert.equal(await isDue(account, ageMs), due)
    await settleAll(bench)
    await assertSettled(bench, [account])
  })
}

// The operator lowered a cap, or settlement was away: the account must not wait for a signature that it cannot get.
test('charges that come to more than the signer signs are paid in several payments, one after the other', async () => {
  const account = await bench.openAccount(5_000_000n)
  for (const charged of [900_000n, 900_000n, 900_000n, 1n]) await pay(bench, account, charged, charged)
  await settleAll(bench)
  assert.deepEqual(await paymentsOf(bench, account), [
    ['completed', 1n, 2n, 1_800_000n],
    ['completed', 3n, 4n, 900_001n],
  ])
  assert.deepEqual(bench.alarms, [])
  await assertSettled(bench, [account])
})

test('the sum of what is unpaid decides: a charge that was given back is not due, however old', async () => {
  const account = await bench.openAccount(20_000n)
  await pay(bench, account, 6_000n, 600n)
  await adjust(bench, account, 600n)
  assert.equal(await isDue(account, 7_200_000), false)
  await pay(bench, account, 6_000n, 10n)
  assert.equal(await isDue(account, 7_200_000), true)
  await settleAll(bench)
  assert.deepEqual(await paymentsOf(bench, account), [['completed', 1n, 3n, 10n]])
  await assertSettled(bench, [account])
})

test('a withdrawal makes due what was charged before it, and nothing that is charged after it', async () => {
  const account = await openOwned(20_000n)
  await pay(bench, account, 1_000n, 10n)
  assert.equal(await isDue(account, 0), false)
  await bench.funds.withdraw(account, randomUUID(), fromAtomic(1_000n))
  assert.equal(await isDue(account, 0), true)
  await pay(bench, account, 1_000n, 20n)
  bench.gateway.batch()
  const states = async () => (await paymentsOf(bench, account)).map(([state]) => state)
  for (let round = 0; round < 4; round += 1) {
    await submitPayments(bench.parts)
    await confirmPayments(bench.parts, 0)
    await advanceTransfers(bench.parts, 'withdrawal')
    bench.gateway.batch()
    bench.gateway.payOut()
    await passTime(bench)
    await makeDuePayments(bench.database, rules, 0)
  }
  assert.deepEqual(await states(), ['completed'], 'the later charge waits for its own time')
  const [open] = await bench.database.query<{ count: number }>(
    `select count(*)::int as count from transfers where account_id = $1 and kind = 'withdrawal' and state <> 'confirmed'`,
    [account.id],
  )
  assert.equal(open!.count, 0)
  await settleAll(bench)
  await assertSettled(bench, [account])
})

test('closing an account makes due what it was charged, and what the seller owes it', async () => {
  const { database } = bench
  const close = ({ partition, id }: BenchAccount) =>
    database.transaction((connection) => closeAccount(connection, { partition, accountId: id }, fromAtomic(1n)))
  const spent = await bench.openAccount(1_000n)
  await pay(bench, spent, 1_000n, 1_000n)
  assert.equal(await isDue(spent, 0), false)
  await close(spent)
  assert.equal(await isDue(spent, 0), true)

  const given = await bench.openAccount(1_000n)
  await pay(bench, given, 1_000n, 1_000n)
  await settleAll(bench)
  await adjust(bench, given, 5n)
  assert.equal(await isDue(given, 0), false)
  await database.query('update ledger_state set withdrawal_fee_max = 5')
  await close(given)
  await database.query('update ledger_state set withdrawal_fee_max = 0')
  assert.equal(await isDue(given, 0), true)
  await settleAll(bench)
  assert.deepEqual((await paymentsOf(bench, given)).at(-1), ['completed', 2n, 2n, -5n])
  assert.equal(bench.gateway.balance(given.address), 5n, 'what is the holder’s is at the holder’s address')
  await assertSettled(bench, [spent, given])
})

test('no payment is made in a frozen ledger, and none of an account without an address', async () => {
  const { database } = bench
  const account = await bench.openAccount(20_000n)
  await pay(bench, account, 6_000n, 600n)
  await database.query(`update ledger_state set frozen_at = now(), reason = 'test'`)
  assert.equal(await isDue(account, 7_200_000), false)
  await database.query('update ledger_state set frozen_at = null, reason = null')
  await database.query('update accounts set address = null where id = $1', [account.id])
  assert.equal(await isDue(account, 7_200_000), false)
  await database.query('update accounts set address = $2 where id = $1', [account.id, account.address])
  assert.equal(await isDue(account, 7_200_000), true)
  await settleAll(bench)
})

test('what is given back after it was paid is paid back by the seller when everything is withdrawn, solvent at each step', async () => {
  const account = await openOwned(10_000n)
  await pay(bench, account, 4_000n, 3_000n)
  await settleAll(bench)
  await adjust(bench, account, 3_000n)
  await assertSolvent('given back')
  assert.equal(await unsettledOf(bench, account), -3_000n)
  await settleOnce(bench)
  assert.equal((await paymentsOf(bench, account)).length, 1, 'it waits for later charges')
  // The seller has nothing beyond what it owes: each step is compared with the chain to the unit.
  const spare = bench.gateway.balance(terms.seller) - 3_000n
  bench.gateway.deposit(terms.seller, -spare)
  const before = bench.gateway.paid.get(ownerAddress) ?? 0n
  const id = randomUUID()
  await bench.funds.withdraw(account, id, fromAtomic(10_000n))
  await assertSolvent('withdrawal requested')
  await settleOnce(bench)
  await assertSolvent('submitted')
  assert.deepEqual((await paymentsOf(bench, account)).at(-1), ['received', 2n, 2n, -3_000n])
  const state = async () => (await findWithdrawal(bench.database, account.partition, account.id, id))!.state
  assert.equal(await state(), 'requested', 'the money is not there yet')
  bench.gateway.batch()
  await assertSolvent('batched, and not yet heard of')
  await passTime(bench)
  await settleOnce(bench)
  await assertSolvent('paid back')
  await passTime(bench)
  await settleOnce(bench)
  await assertSolvent('withdrawal requested')
  bench.gateway.payOut()
  await settleAll(bench)
  await assertSolvent('withdrawn')
  assert.equal(await state(), 'confirmed')
  assert.equal((bench.gateway.paid.get(ownerAddress) ?? 0n) - before, 10_000n)
  assert.equal(bench.gateway.balance(terms.seller), 0n)
  bench.gateway.deposit(terms.seller, spare)
  await assertSettled(bench, [account])
})

test('a gift that was taken back is a charge: it is paid like one', async () => {
  const account = await bench.openAccount(10_000n)
  await pay(bench, account, 1_000n, 800n)
  await settleAll(bench)
  await adjust(bench, account, 800n)
  await adjust(bench, account, -300n)
  await pay(bench, account, 1_000n, 600n)
  assert.equal(await unsettledOf(bench, account), 100n)
  await settleAll(bench)
  assert.deepEqual((await paymentsOf(bench, account)).at(-1), ['completed', 2n, 4n, 100n])
  await assertSettled(bench, [account])
})

const full = BigInt(paymentEntriesMax)

test('more entries than one payment covers are paid by several, and a range that is worth nothing needs no transfer', async () => {
  const account = await bench.openAccount(1_000_000n)
  await voidMany(account, paymentEntriesMax)
  await settleOnce(bench)
  assert.deepEqual(await paymentsOf(bench, account), [], 'nothing was charged: nothing is due')
  await pay(bench, account, 1_000n, 700n)
  await settleAll(bench)
  assert.deepEqual(await paymentsOf(bench, account), [
    ['completed', 1n, full, 0n],
    ['completed', full + 1n, full + 1n, 700n],
  ])
  const ofAccount = [...bench.gateway.transfers.values()].filter(({ from }) => from === account.address)
  assert.deepEqual(
    ofAccount.map(({ amount }) => amount),
    [700n],
  )
  await pay(bench, account, 1_000n, 1n)
  await voidMany(account, paymentEntriesMax - 1)
  await pay(bench, account, 1_000n, 2n)
  await settleAll(bench)
  assert.deepEqual((await paymentsOf(bench, account)).slice(2), [
    ['completed', full + 2n, 2n * full + 1n, 1n],
    ['completed', 2n * full + 2n, 2n * full + 2n, 2n],
  ])
  await assertSettled(bench, [account])
})

test('a full range that is worth less than nothing is paid back by the seller automatically', async () => {
  const account = await bench.openAccount(100_000n)
  await pay(bench, account, 1_000n, 900n)
  await settleAll(bench)
  await adjust(bench, account, 900n)
  await voidMany(account, paymentEntriesMax - 1)
  await pay(bench, account, 1_000n, 5n)
  await settleOnce(bench)
  await settleAll(bench)
  assert.deepEqual((await paymentsOf(bench, account)).slice(1), [
    ['completed', 2n, full + 1n, -900n],
    ['completed', full + 2n, full + 2n, 5n],
  ])
  await assertSettled(bench, [account])
})

async function lock(connection: Connection, { partition, id }: BenchAccount): Promise<void> {
  await connection.query('select from accounts where partition = $1 and id = $2 for update', [partition, id])
}

test('an account that stays locked holds up no other account’s payments', async () => {
  const { database } = bench
  const accounts = [await bench.openAccount(10_000n), await bench.openAccount(10_000n)] as const
  const [locked, other] = accounts
  for (const account of accounts) await pay(bench, account, 1_000n, 100n)
  await database.transaction(async (connection) => {
    await lock(connection, locked)
    await settleOnce(bench)
    bench.gateway.batch()
    await passTime(bench)
    await settleOnce(bench)
    assert.deepEqual(await paymentsOf(bench, other), [['completed', 1n, 1n, 100n]])
    assert.deepEqual(await paymentsOf(bench, locked), [])
  })
  // Locked in the moment in which its news comes.
  await settleOnce(bench)
  await pay(bench, other, 1_000n, 50n)
  await settleOnce(bench)
  bench.gateway.batch()
  await passTime(bench)
  await database.transaction(async (connection) => {
    await lock(connection, locked)
    await settleOnce(bench)
    assert.deepEqual(
      (await paymentsOf(bench, other)).map(([state]) => state),
      ['completed', 'completed'],
    )
    assert.deepEqual(
      (await paymentsOf(bench, locked)).map(([state]) => state),
      ['received'],
    )
  })
  await settleAll(bench)
  await assertSettled(bench, accounts)
})

test('a payment whose entries cannot be read raises an alarm, and delays no other account’s payments', async () => {
  const { database } = bench
  const accounts = [await bench.openAccount(10_000n), await bench.openAccount(10_000n)] as const
  const [broken, other] = accounts
  for (const account of accounts) await pay(bench, account, 1_000n, 100n)
  const move = (by: number) =>
    database.query('update requests set entry = entry + $2 where account_id = $1', [broken.id, by])
  await makeDuePayments(database, { ...rules, afterMs: 0, min: fromAtomic(0n) }, 0)
  await move(7)
  await settleOnce(bench)
  assert.equal((await paymentsOf(bench, other))[0]![0], 'received')
  assert.equal((await paymentsOf(bench, broken))[0]![0], 'submitted')
  assert.deepEqual(bench.alarms, ['the receipts of a payment cannot be computed'])
  await move(-7)
  await settleAll(bench)
  await assertSettled(bench, accounts)
})

test('requests are charged while the account’s payment fails again and again: all of it is paid in the end', async () => {
  const account = await bench.openAccount(100_000n)
  let charged = 0n
  for (let round = 1n; round <= 6n; round += 1n) {
    const placed = await hold(bench.holds, account, 1_000n)
    await settleOnce(bench)
    await bench.holds.end(charge(placed, round * 10n))
    charged += round * 10n
    for (const transfer of bench.gateway.transfers.values()) {
      if (transfer.status === 'received') bench.gateway.fail(transfer.id)
    }
    await passTime(bench)
    await settleOnce(bench)
    assert.equal(await unsettledOf(bench, account), charged)
    assert.equal((await accountOf(bench, account)).spendable, 100_000n - charged)
    await passTime(bench)
  }
  await settleAll(bench)
  const completed = (await paymentsOf(bench, account)).filter(([state]) => state === 'completed')
  assert.deepEqual(completed, [['completed', 1n, 6n, charged]])
  await assertSettled(bench, [account])
})
