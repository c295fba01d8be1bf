import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { findViolations } from '../../src/ledger/audit.ts'
import { findFreeze, unfreezeLedger } from '../../src/ledger/freeze.ts'
import type { Hold } from '../../src/ledger/hold-calls.ts'
import { makeDuePayments } from '../../src/ledger/payments.ts'
import { findPayout, insertPayout, readPayable } from '../../src/ledger/payouts.ts'
import { claimReplay, closeReplay, refundAttempt } from '../../src/ledger/replays.ts'
import { advanceTransfer, type Transfer } from '../../src/ledger/transfers.ts'
import { findWithdrawal, requestWithdrawal } from '../../src/ledger/withdrawals.ts'
import { fromAtomic } from '../../src/money/usdc.ts'
import type { Chain } from '../../src/settlement/chain.ts'
import { PayoutTooLargeError, requestPayout } from '../../src/settlement/payout.ts'
import { checkSolvency, isSolvent, readSolvency, watchSolvency } from '../../src/settlement/solvency.ts'
import { advanceTransfers } from '../../src/settlement/transfers/machine.ts'
import { type Address, checksummed, zeroAddress } from '../../src/signer/address.ts'
import type { Signer } from '../../src/signer/signer.ts'
import { SigningRefusedError } from '../../src/signer/signing-request.ts'
import { payOutMax } from '../../src/signer/signing-terms.ts'
import { atEnd } from '../support/at-end.ts'
import { earlier } from '../support/earlier.ts'
import { cancelledByClient, charge, hold, newReplayKey, place, search, searchPrice, voided } from '../support/ledger.ts'
import {
  accountOf,
  adjust,
  assertSettled,
  type BenchAccount,
  dueAtOnce,
  passTime,
  pay,
  paymentsOf,
  settleAll,
  settlementSuite,
  settleOnce,
} from '../support/settlement-bench.ts'
import { address, ownerAddress, payoutAddress, terms } from '../support/signing.ts'

const waitMs = 3_600_000
let laterMs = 0
const bench = settlementSuite({ ownerWaitMs: waitMs, now: () => Date.now() + laterMs, accountHourMax: payOutMax })
const holdsMax = Number(process.env.SETTLEMENT_RUNS ?? 0) > 0 ? 1_000 : 100

async function openOwned(atomic: bigint): Promise<BenchAccount> {
  const account = await bench.openAccount(atomic)
  await bench.funds.registerOwner(account, ownerAddress, true)
  return account
}

async function stateOf({ partition, id }: BenchAccount, withdrawal: string): Promise<Transfer> {
  return (await findWithdrawal(bench.database, partition, id, withdrawal))!
}

test('the same request again is the same withdrawal; another amount under its id is refused', async () => {
  const account = await openOwned(10_000n)
  const id = randomUUID()
  const withdrawals = await Promise.all(
    Array.from({ length: 8 }, () => bench.funds.withdraw(account, id, fromAtomic(4_000n))),
  )
  assert.deepEqual([...new Set(withdrawals.map(({ id }) => id))], [id])
  await assert.rejects(bench.funds.withdraw(account, id, fromAtomic(4_001n)), { code: 'idempotency_mismatch' })
  await settleAll(bench)
  assert.equal((await bench.funds.withdraw(account, id, fromAtomic(4_000n))).state, 'confirmed')
  assert.equal((await accountOf(bench, account)).spendable, 6_000n)
  await assertSettled(bench, [account])
})

test('more than there is, and nothing, cannot be withdrawn', async () => {
  const account = await openOwned(1_000n)
  await assert.rejects(bench.funds.withdraw(account, randomUUID(), fromAtomic(1_001n)), {
    code: 'insufficient_balance',
  })
  await assert.rejects(bench.funds.withdraw(account, randomUUID(), fromAtomic(0n)), { code: 'invalid_value' })
  const open = await hold(bench.holds, account, 600n)
  await assert.rejects(bench.funds.withdraw(account, randomUUID(), fromAtomic(401n)), { code: 'insufficient_balance' })
  await bench.holds.end(voided(open))
})

test('an address at which money would be lost, or go round in a circle, is refused', async () => {
  const account = await bench.openAccount(1_000n)
  const mistyped = checksummed(ownerAddress).replace(/[a-f](?=[^a-f]*$)/, (digit) => digit.toUpperCase())
  for (const bad of [
    zeroAddress,
    terms.usdc.address,
    terms.gatewayWallet,
    terms.gatewayMinter,
    terms.seller,
    account.address,
    mistyped,
    ownerAddress.slice(0, -1),
    'vitalik.eth',
  ]) {
    await assert.rejects(bench.funds.registerOwner(account, bad, true), { code: 'invalid_value' }, bad)
  }
  await assert.rejects(bench.funds.withdraw(account, randomUUID(), fromAtomic(1n)), { code: 'invalid_value' })
})

test('a changed owner waits, a withdrawal under way is not redirected, and its intent can still be submitted again', async () => {
  const account = await openOwned(10_000n)
  const other = address('0x15d34aaf54267db7d7c367839aaf71a00a2c6a65')
  const id = randomUUID()
  await bench.funds.withdraw(account, id, fromAtomic(1_000n))
  await bench.funds.registerOwner(account, other, true)
  assert.equal((await bench.funds.withdraw(account, id, fromAtomic(1_000n))).counterparty, ownerAddress)
  await assert.rejects(bench.funds.withdraw(account, randomUUID(), fromAtomic(1n)), { code: 'invalid_value' })
  const before = bench.gateway.paid.get(ownerAddress) ?? 0n
  await settleAll(bench)
  assert.equal((bench.gateway.paid.get(ownerAddress) ?? 0n) - before, 1_000n)
  laterMs = waitMs + 1
  await bench.database.query('update accounts set owner_usable_from = now() where id = $1', [account.id])
  await bench.funds.withdraw(account, randomUUID(), fromAtomic(500n))
  await settleAll(bench)
  laterMs = 0
  assert.equal(bench.gateway.paid.get(other), 500n)
})

test('a withdrawal whose reply was lost is paid once, to its owner, even if the owner changes before the retry', async () => {
  const account = await openOwned(10_000n)
  const before = bench.gateway.paid.get(ownerAddress) ?? 0n
  for (const fault of ['hung up', 'refused connection'] as const) {
    const id = randomUUID()
    await bench.funds.withdraw(account, id, fromAtomic(1_000n))
    bench.gateway.faults = (call) => (call === 'POST /v1/transfer' ? fault : undefined)
    await settleOnce(bench)
    assert.deepEqual([(await stateOf(account, id)).state, (await stateOf(account, id)).gatewayId], ['sent', undefined])
    await bench.funds.registerOwner(account, address('0x15d34aaf54267db7d7c367839aaf71a00a2c6a65'), true)
    laterMs = waitMs + 1
    await settleAll(bench)
    laterMs = 0
    assert.equal((await stateOf(account, id)).state, 'confirmed', fault)
    await bench.funds.registerOwner(account, ownerAddress, true)
    await bench.database.query('update accounts set owner_usable_from = now() where id = $1', [account.id])
  }
  assert.equal((bench.gateway.paid.get(ownerAddress) ?? 0n) - before, 2_000n)
  await assertSettled(bench, [account])
})

test('an intent that was never submitted is not signed for an owner of before', async () => {
  const account = await openOwned(10_000n)
  const id = randomUUID()
  await bench.funds.withdraw(account, id, fromAtomic(1_000n))
  // As when the process died between the signature and its first word to the gateway.
  await bench.database.query('update transfers set signature = $2 where id = $1', [id, Buffer.alloc(65, 1)])
  await bench.funds.registerOwner(account, address('0x15d34aaf54267db7d7c367839aaf71a00a2c6a65'), true)
  laterMs = waitMs + 1
  await settleAll(bench)
  laterMs = 0
  assert.deepEqual(
    [(await stateOf(account, id)).state, (await accountOf(bench, account)).spendable],
    ['failed', 10_000n],
  )
})

test('an attacker with only the database cannot redirect a withdrawal: the signer refuses, and the money is returned', async () => {
  const account = await openOwned(10_000n)
  await bench.database.query('update accounts set owner_address = $2 where id = $1', [account.id, payoutAddress])
  const id = randomUUID()
  await bench.funds.withdraw(account, id, fromAtomic(10_000n))
  await settleAll(bench)
  const { state, reason } = await stateOf(account, id)
  assert.deepEqual([state, reason], ['failed', 'refused: wrong_intent'])
  assert.equal((await accountOf(bench, account)).spendable, 10_000n)
  await assertSettled(bench, [account])
})

// The runbook tells operators to search the log for the reason.
test('the log names the reason for which the signer refuses a withdrawal or a payout', async () => {
  const { database, parts } = bench
  const account = await openOwned(10_000n)
  await database.query('update accounts set owner_address = $2 where id = $1', [account.id, payoutAddress])
  await bench.funds.withdraw(account, randomUUID(), fromAtomic(10_000n))
  const payout = {
    id: randomUUID(),
    amount: fromAtomic(payOutMax + 1n),
    feeMax: fromAtomic(0n),
    counterparty: payoutAddress,
  }
  await insertPayout(database, payout)
  const logged: unknown[] = []
  const onAlarm = (what: string, { reason }: { reason?: unknown }) => void logged.push([what, reason])
  await advanceTransfers({ ...parts, onAlarm }, 'withdrawal')
  await advanceTransfers({ ...parts, onAlarm }, 'payout')
  assert.deepEqual(logged, [
    ['the signer refuses a withdrawal', 'wrong_intent'],
    ['the signer refuses a payout', 'value_out_of_range'],
  ])
})

test('a withdrawal above the maximum is refused, and returned if it was accepted before', async () => {
  const amount = fromAtomic(payOutMax + 1n)
  const account = await openOwned(amount)
  const message = /100000\.000001 USDC cannot be withdrawn in one go: the maximum is 100000 USDC/
  await assert.rejects(bench.funds.withdraw(account, randomUUID(), amount), { code: 'invalid_value', message })
  const id = randomUUID()
  const { partition } = account
  await requestWithdrawal(bench.database, {
    partition,
    accountId: account.id,
    id,
    amount,
    recipient: ownerAddress,
    min: fromAtomic(1n),
  })
  await settleAll(bench)
  assert.equal((await stateOf(account, id)).reason, 'refused: value_out_of_range')
  assert.equal((await accountOf(bench, account)).spendable, amount)
  await bench.funds.withdraw(account, randomUUID(), fromAtomic(payOutMax))
  await settleAll(bench)
  assert.equal((await accountOf(bench, account)).spendable, 1n)
  await assertSettled(bench, [account])
})

test('a payout above the maximum is refused, and ends if it was accepted before', async () => {
  const read = async () => 2n * payOutMax
  const most = /cannot be paid out in one go: the maximum is 100000 USDC/
  await assert.rejects(requestPayout(bench.database, 'all', payoutAddress, read), most)
  const id = randomUUID()
  await bench.database.query(
    `insert into transfers (partition, kind, id, amount, counterparty) values (0, 'payout', $1, $2, $3)`,
    [id, payOutMax + 1n, payoutAddress],
  )
  await settleAll(bench)
  assert.equal((await findPayout(bench.database, id))!.reason, 'refused: value_out_of_range')
})

// A person gives a withdrawal back (docs/runbooks/settlement-stuck.md) in the moment in which its turn has come.
test('a withdrawal that ended after it was read is not submitted: it would be paid besides', async () => {
  const { database, parts } = bench
  for (const credit of [0n, 1_000n]) {
    const account = await openOwned(10_000n)
    if (credit > 0n) await pay(bench, account, 2_000n, 2_000n - credit)
    await settleAll(bench)
    const { spendable } = await accountOf(bench, account)
    const id = randomUUID()
    await bench.funds.withdraw(account, id, spendable)
    const end = async () => {
      const ended = { partition: account.partition, accountId: account.id, id, attempts: 0 }
      assert.equal(await advanceTransfer(database, ended, { state: 'failed', reason: 'by hand' }), true)
    }
    const signer: Signer = {
      ...parts.signer,
      sign: async (request) => end().then(() => parts.signer.sign(request)),
    }
    bench.gateway.calls.length = 0
    await advanceTransfers({ ...parts, signer }, 'withdrawal')
    assert.equal((await stateOf(account, id)).reason, 'by hand')
    const submitted = bench.gateway.calls.filter((call) => /transfer$|settle/.test(call))
    assert.deepEqual(submitted, [], `with ${credit} of credit`)
    assert.equal((await accountOf(bench, account)).spendable, spendable)
    await assertSettled(bench, [account])
  }
})

// A process whose lock was lost unseen goes on with what it read, beside the one that has the lock now.
test('a withdrawal that another process has submitted is not given back by one that read it before', async () => {
  const { database, parts, funds } = bench
  const account = await openOwned(10_000n)
  const id = randomUUID()
  await funds.withdraw(account, id, fromAtomic(4_000n))
  const [reached, go] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const signer: Signer = {
    ...parts.signer,
    async sign() {
      reached.resolve()
      await go.promise
      throw new SigningRefusedError('wrong_intent', 'the owner has changed')
    },
  }
  const late = advanceTransfers({ ...parts, signer }, 'withdrawal')
  await reached.promise
  await advanceTransfers(parts, 'withdrawal')
  assert.equal((await stateOf(account, id)).state, 'received')
  go.resolve()
  await late
  assert.equal((await stateOf(account, id)).state, 'received', 'it is on its way, whatever the late one thinks of it')
  await settleAll(bench)
  assert.equal((await stateOf(account, id)).state, 'confirmed')
  assert.equal((await accountOf(bench, account)).spendable, 6_000n)
  assert.deepEqual(await findViolations(database), [])
})

test('a refusal does not end a withdrawal that was accepted at a later attempt', async () => {
  const { database, parts, funds, gateway } = bench
  const account = await openOwned(10_000n)
  await pay(bench, account, 2_000n, 1_000n)
  await settleAll(bench)
  const [withdrawal, paidBefore] = [randomUUID(), gateway.paid.get(payoutAddress) ?? 0n]
  await funds.withdraw(account, withdrawal, fromAtomic(4_000n))
  const payout = await requestPayout(database, fromAtomic(1_000n), payoutAddress, async () =>
    gateway.balance(terms.seller),
  )
  for (const kind of ['withdrawal', 'payout'] as const) {
    gateway.withdrawalRefusals.push('Try again later')
    const gatewayClient: typeof parts.gatewayClient = {
      ...parts.gatewayClient,
      async withdraw(...intent) {
        const answer = await parts.gatewayClient.withdraw(...intent)
        // Another process submits the intent again before this one has recorded the refusal.
        await passTime(bench)
        await advanceTransfers(parts, kind)
        return answer
      },
    }
    await advanceTransfers({ ...parts, gatewayClient }, kind)
  }
  assert.equal((await stateOf(account, withdrawal)).state, 'received')
  assert.equal((await findPayout(database, payout))!.state, 'received')
  await settleAll(bench)
  assert.equal((await stateOf(account, withdrawal)).state, 'confirmed')
  assert.equal((await findPayout(database, payout))!.state, 'confirmed')
  assert.equal(gateway.paid.get(payoutAddress), paidBefore + 1_000n)
  assert.equal((await accountOf(bench, account)).spendable, 5_000n)
  await assertSettled(bench, [account])
})

test('a database clock that was a day ahead and was set back delays no payment, withdrawal or payout', async () => {
  const { database, gateway } = bench
  const account = await openOwned(10_000n)
  await pay(bench, account, 1_000n, 1_000n)
  await settleAll(bench)
  await requestPayout(database, fromAtomic(1_000n), payoutAddress, async () => gateway.balance(terms.seller))
  await pay(bench, account, 1_000n, 1_000n)
  await makeDuePayments(database, dueAtOnce, 0)
  await bench.funds.withdraw(account, randomUUID(), fromAtomic(4_000n))
  const ahead = (column: string) => earlier(column, "interval '-1 day'")
  for (const [table, ...columns] of [['payments', 'authorized_at'], ['transfers']]) {
    const changes = ['created_at', 'changed_at', ...columns].map(ahead)
    await database.query(`update ${table} set ${changes.join(', ')} where state in ('submitted', 'requested')`)
  }
  await settleAll(bench)
  assert.deepEqual(bench.alarms, ['the validity window of a waiting payment was renewed'])
  assert.equal((await accountOf(bench, account)).spendable, 4_000n)
  await assertSettled(bench, [account])
})

test('everything is withdrawn while holds race for it: together they never take more than there is', async () => {
  const account = await openOwned(50_000n)
  const racing = Array.from({ length: holdsMax }, () => place(bench.holds, account, 100n))
  const requests = Array.from({ length: 12 }, async () => {
    const { spendable } = await accountOf(bench, account)
    if (spendable > 0n) await bench.funds.withdraw(account, randomUUID(), spendable).catch(() => undefined)
  })
  const decisions = await Promise.all(racing)
  await Promise.all(requests)
  assert.deepEqual(await findViolations(bench.database, [account.id]), [])
  for (const decision of decisions) if ('hold' in decision) await bench.holds.end(charge(decision.hold, 60n))
  await settleAll(bench)
  const { spendable } = await accountOf(bench, account)
  if (spendable > 0n) await bench.funds.withdraw(account, randomUUID(), spendable)
  await settleAll(bench)
  assert.equal((await accountOf(bench, account)).spendable, 0n)
  await assertSettled(bench, [account])
})

test('a debt is paid first, and the rest goes to the owner', async () => {
  const account = await openOwned(20_000n)
  await search(bench.holds, await hold(bench.holds, account, 100n))
  const { credit, spendable } = await accountOf(bench, account)
  assert.equal(credit, 100n - searchPrice)
  const before = bench.gateway.paid.get(ownerAddress) ?? 0n
  await bench.funds.withdraw(account, randomUUID(), spendable)
  assert.deepEqual(await findViolations(bench.database, [account.id]), [])
  await settleAll(bench)
  assert.equal((bench.gateway.paid.get(ownerAddress) ?? 0n) - before, 20_000n - searchPrice)
  const after = await accountOf(bench, account)
  assert.equal(after.gateway + after.credit, 0n)
  assert.equal(bench.gateway.balance(account.address), 0n)
  await assertSettled(bench, [account])
})

test('a withdrawal that is refused or fails gives back every unit as it was taken', async () => {
  for (const end of ['refused', 'failed'] as const) {
    const account = await openOwned(10_000n)
    await pay(bench, account, 4_000n, 1_000n)
    await settleAll(bench)
    if (end === 'refused') bench.gateway.withdrawalRefusals.push('Insufficient balance for depositor')
    const id = randomUUID()
    await bench.funds.withdraw(account, id, fromAtomic(9_000n))
    while (!['received', 'failed'].includes((await stateOf(account, id)).state)) {
      await settleOnce(bench)
      bench.gateway.batch()
      await passTime(bench)
    }
    bench.gateway.failWithdrawals()
    await settleAll(bench)
    const { state, reason } = await stateOf(account, id)
    const expected = end === 'refused' ? 'Insufficient balance for depositor' : 'MINT_FAILED'
    assert.deepEqual([state, reason], ['failed', expected])
    const { gateway, credit } = await accountOf(bench, account)
    assert.deepEqual([gateway, credit], [6_000n, 3_000n])
    await assertSettled(bench, [account])
  }
})

/** An account that was charged, paid for it, and was given it back: the seller owes it so much. */
async function openGiven(atomic: bigint, given: bigint): Promise<BenchAccount> {
  const account = await openOwned(atomic)
  await pay(bench, account, given, given)
  await settleAll(bench)
  await adjust(bench, account, given)
  return account
}

test('what the seller cannot pay back yet makes its withdrawal wait, and no other', async () => {
  const waiting: BenchAccount[] = []
  for (let count = 0; count < 51; count += 1) {
    const account = await openOwned(2_000n)
    await pay(bench, account, 500n, 500n)
    waiting.push(account)
  }
  await settleAll(bench)
  for (const account of waiting) await adjust(bench, account, 500n)
  const drained = bench.gateway.balance(terms.seller)
  bench.gateway.deposit(terms.seller, -drained)
  for (const account of waiting) await bench.funds.withdraw(account, randomUUID(), fromAtomic(2_000n))
  const account = await openOwned(1_000n)
  const id = randomUUID()
  await bench.funds.withdraw(account, id, fromAtomic(1_000n))
  for (let round = 0; round < 3; round += 1) {
    await settleOnce(bench)
    bench.gateway.payOut()
    await passTime(bench)
  }
  assert.equal((await stateOf(account, id)).state, 'confirmed')
  const [waits] = await bench.database.query<{ count: number }>(
    `select count(*)::int as count from transfers where kind = 'withdrawal' and state = 'requested'`,
  )
  assert.equal(waits!.count, 51)
  bench.gateway.deposit(terms.seller, drained)
  await settleAll(bench)
  await assertSettled(bench, [account, ...waiting])
})

test('a seller that cannot pay back what it owes stays insolvent when the owner asks for it, and a person is called', async () => {
  const { database, gateway } = bench
  const account = await openGiven(2_000n, 1_000n)
  const read = async () => gateway.balance(terms.seller)
  const drained = await read()
  gateway.deposit(terms.seller, -drained)
  const look = () => checkSolvency({ database, chain: chainOf(gateway), seller: terms.seller })
  const before = await look()
  assert.deepEqual([isSolvent(before), before.short], [false, []])
  const id = randomUUID()
  await bench.funds.withdraw(account, id, fromAtomic(2_000n))
  await settleOnce(bench)
  assert.deepEqual(bench.alarms, ['the gateway refuses a payment'])
  assert.equal((await stateOf(account, id)).state, 'requested')

  gateway.deposit(terms.seller, drained)
  assert.equal(isSolvent(await look()), true)
  const payable = await readPayable(database, read)
  await passTime(bench)
  await settleOnce(bench)
  assert.equal((await paymentsOf(bench, account)).at(-1)![0], 'received')
  assert.equal(await readPayable(database, read), payable > 1_000n ? payable - 1_000n : 0n, 'not yet gone for sure')
  await settleAll(bench)
  assert.equal(await readPayable(database, read), payable, 'counted once, before and after')
  assert.equal((await stateOf(account, id)).state, 'confirmed')
  await assertSettled(bench, [account])
})

// A4: one unit of missing coverage refused every account's requests.
test('a seller that is short stops payouts and what it owes back, and nothing else', async () => {
  const { database, gateway, holds, parts } = bench
  const payer = await openGiven(2_000n, 1_000n)
  const other = await openOwned(5_000n)
  const read = async () => gateway.balance(terms.seller)
  gateway.deposit(terms.seller, 1n)
  const payout = await requestPayout(database, fromAtomic(1n), payoutAddress, read)
  const all = await read()
  gateway.deposit(terms.seller, 999n - all)
  const watch = () => watchSolvency({ ...parts, chain: chainOf(gateway), seller: terms.seller, recheckMs: 0 })
  await watch()
  assert.deepEqual(bench.alarms.splice(0), ['the seller has less than it owes back'])
  const report = (await readSolvency(database)) as Record<string, unknown>
  assert.deepEqual([report.ok, report.seller_short_atomic, report.short], [false, '1', []])
  assert.equal(await findFreeze(database), undefined)

  const [given, plain] = [randomUUID(), randomUUID()]
  await bench.funds.withdraw(payer, given, fromAtomic(2_000n))
  await bench.funds.withdraw(other, plain, fromAtomic(1_000n))
  for (let round = 0; round < 3; round += 1) {
    await settleOnce(bench)
    gateway.payOut()
    await passTime(bench)
  }
  assert.equal((await stateOf(payer, given)).state, 'requested')
  assert.equal((await stateOf(other, plain)).state, 'confirmed')
  assert.equal((await findPayout(database, payout))!.state, 'requested')
  assert.ok(bench.alarms.includes('payout postponed: the seller has less than it owes'))

  gateway.deposit(terms.seller, all - 999n)
  await watch()
  await holds.end(charge(await hold(holds, other, 1_000n), 500n))
  await settleAll(bench)
  assert.equal((await stateOf(payer, given)).state, 'confirmed')
  assert.equal((await findPayout(database, payout))!.state, 'confirmed')
  gateway.deposit(terms.seller, -1n)
  await assertSettled(bench, [payer, other])
})

test('an account that is short on chain freezes the ledger', async (t) => {
  const { database, gateway, parts } = bench
  const account = await openOwned(2_000n)
  atEnd(t, () => unfreezeLedger(database))
  gateway.deposit(account.address, -1n)
  const watch = () => watchSolvency({ ...parts, chain: chainOf(gateway), seller: terms.seller, recheckMs: 0 })
  await watch()
  assert.match((await findFreeze(database))!, /^I12 is broken: the chain has less than the ledger says/)
  assert.deepEqual(bench.alarms, ['the chain has less than the ledger says'])
  gateway.deposit(account.address, 1n)
  await unfreezeLedger(database)
  await watch()
  assert.equal(await findFreeze(database), undefined)
})

function chainOf(gateway: typeof bench.gateway): Chain {
  return {
    finalBlock: async () => 1n,
    gatewayBalances: async (depositors: readonly Address[]) =>
      depositors.map((depositor) => gateway.balance(depositor)),
  } as unknown as Chain
}

test('payouts take earned revenue and never money that is owed back, even concurrently', async () => {
  const account = await openGiven(10_000n, 1_000n)
  await pay(bench, account, 4_000n, 300n)
  const read = async () => bench.gateway.balance(terms.seller)
  const payable = await readPayable(bench.database, read)
  const owed = await sumOwedBack()
  assert.equal(owed, 700n, 'later charges make up for a part of it')
  assert.equal(payable, (await read()) - owed)
  const more = fromAtomic(payable + 1n)
  await assert.rejects(requestPayout(bench.database, more, payoutAddress, read), PayoutTooLargeError)
  const asked = Array.from({ length: 5 }, () => requestPayout(bench.database, payable, payoutAddress, read))
  const taken = (await Promise.allSettled(asked)).filter(({ status }) => status === 'fulfilled')
  assert.equal(taken.length, payable > 0n ? 1 : 0)
  await settleAll(bench)
  assert.equal(await read(), owed)
  const { spendable } = await accountOf(bench, account)
  assert.equal(spendable, 9_700n)
  await bench.funds.withdraw(account, randomUUID(), spendable)
  await settleAll(bench)
  assert.equal(await read(), 0n)
  await assertSettled(bench, [account])
})

test('what a request did not use never reaches the seller: with all revenue paid out, the rest can be withdrawn', async () => {
  const account = await openOwned(10_000n)
  await pay(bench, account, 9_000n, 1_000n)
  await settleAll(bench)
  const read = async () => bench.gateway.balance(terms.seller)
  const before = await readPayable(bench.database, read)
  const open = await hold(bench.holds, account, 8_000n)
  assert.equal(open.fromCredit, 8_000n)
  assert.equal(await readPayable(bench.database, read), before)
  await requestPayout(bench.database, 'all', payoutAddress, read)
  await settleAll(bench)
  await bench.holds.end(voided(open))
  const { spendable } = await accountOf(bench, account)
  assert.equal(spendable, 9_000n)
  await bench.funds.withdraw(account, randomUUID(), spendable)
  await settleAll(bench)
  await assertSettled(bench, [account])
})

// An attempt may cost more than its retry holds (searches). A seller that pays out such a charge is short of what it
// owes back.
for (const mark of ['x-stainless-retry-count', 'Idempotency-Key'] as const) {
  test(`a charge that a retry may still have refunded is not paid out, marked by ${mark}`, async () => {
    const { database, holds } = bench
    const { node } = holds
    const read = async () => bench.gateway.balance(terms.seller)
    const account = await openOwned(200_000n)
    await pay(bench, account, 60_000n, 60_000n)
    const attemptHash = mark === 'Idempotency-Key' ? undefined : 7n
    const key = { ...newReplayKey(account), attemptHash }
    const first = await attempt(account, 40_000n, attemptHash)
    if (attemptHash === undefined) await claimReplay(database, key, { requestId: first.requestId, node })
    await holds.end(charge(first, 10_000n, cancelledByClient))
    if (attemptHash === undefined) await closeReplay(database, key, first.requestId, undefined)
    await settleAll(bench)
    assert.equal(await readPayable(database, read), (await read()) - (await sumOwedBack()) - 10_000n)
    // The retry holds less than the attempt cost, and takes so long that no other retry could begin any more.
    const second = await attempt(account, 9_000n, undefined)
    const claim = await claimReplay(database, key, { requestId: second.requestId, node })
    assert.equal(claim.state, 'claimed')
    await pass(first, 200)
    await pass(second, 200)
    await requestPayout(database, 'all', payoutAddress, read)
    await settleAll(bench)
    await holds.end(charge(second, 9_000n))
    assert.equal(await refundAttempt(database, key, second.requestId), 9_000n)
    await closeReplay(database, key, second.requestId, 'the answer')
    await settleAll(bench)
    assert.ok((await read()) >= (await sumOwedBack()), 'the seller has what it owes back')
    await pass(second, 200)
    assert.equal(await readPayable(database, read), (await read()) - (await sumOwedBack()))
    await assertSettled(bench, [account])
  })
}

async function pass({ requestId }: Hold, seconds: number): Promise<void> {
  const { database } = bench
  const by = "$2 * interval '1 second'"
  await database.query(`update holds set ${earlier('created_at', by)} where id = $1`, [requestId, seconds])
  await database.query(`update requests set ${earlier('created_at', by)}, ${earlier('ended_at', by)} where id = $1`, [
    requestId,
    seconds,
  ])
}

/** An attempt that holds, with the mark by which the SDK's retries find it. */
async function attempt(account: BenchAccount, quote: bigint, bodyHash: bigint | undefined): Promise<Hold> {
  const placed = await hold(bench.holds, account, quote)
  await bench.database.query('update holds set body_hash = $2 where id = $1', [placed.requestId, bodyHash ?? null])
  return placed
}

/** Given back after it was paid, and not made up for by later charges. */
async function sumOwedBack(): Promise<bigint> {
  const [row] = await bench.database.query<{ owed: bigint }>(
    'select sum(greatest(0, paid - charged + given_back))::bigint as owed from accounts',
  )
  return row!.owed
}

test('a payout that ended after it was read is not submitted', async () => {
  const { database, parts } = bench
  const account = await openOwned(10_000n)
  await pay(bench, account, 1_000n, 1_000n)
  await settleAll(bench)
  const read = async () => bench.gateway.balance(terms.seller)
  const id = await requestPayout(database, fromAtomic(1_000n), payoutAddress, read)
  const signer: Signer = {
    ...parts.signer,
    async sign(request) {
      await database.query(`update transfers set state = 'failed', reason = 'by hand' where id = $1`, [id])
      return parts.signer.sign(request)
    },
  }
  bench.gateway.calls.length = 0
  await advanceTransfers({ ...parts, signer }, 'payout')
  assert.deepEqual(
    bench.gateway.calls.filter((call) => call === 'POST /v1/transfer'),
    [],
  )
  assert.equal((await findPayout(database, id))!.reason, 'by hand')
  await assertSettled(bench, [account])
})

test('a payout that fails at the gateway calls a person, and can be asked for again', async () => {
  const account = await openOwned(10_000n)
  await pay(bench, account, 1_000n, 1_000n)
  await settleAll(bench)
  const read = async () => bench.gateway.balance(terms.seller)
  const before = await read()
  const id = await requestPayout(bench.database, fromAtomic(1_000n), payoutAddress, read)
  await settleOnce(bench)
  bench.gateway.failWithdrawals()
  await passTime(bench)
  await settleOnce(bench)
  assert.deepEqual([(await findPayout(bench.database, id))!.reason, bench.alarms], ['MINT_FAILED', ['a payout failed']])
  assert.equal(await read(), before)
  await requestPayout(bench.database, fromAtomic(1_000n), payoutAddress, read)
  await settleAll(bench)
  await assertSettled(bench, [account])
})
