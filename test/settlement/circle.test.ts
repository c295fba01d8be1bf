import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import fc from 'fast-check'
import { findViolations } from '../../src/ledger/audit.ts'
import { findWithdrawal, readWithdrawalFeeMax } from '../../src/ledger/withdrawals.ts'
import { fromAtomic } from '../../src/money/usdc.ts'
import { issueReceipts } from '../../src/settlement/issue-receipts.ts'
import { requestPayout } from '../../src/settlement/payout.ts'
import { submitPayments } from '../../src/settlement/submit.ts'
import { afterFaults, beforeFaults, type CallFault, errorReasons } from '../support/circle-gateway.ts'
import {
  accountOf,
  assertSettled,
  type BenchAccount,
  passTime,
  pay,
  setFee,
  settleAll,
  settlementSuite,
  settleOnce,
} from '../support/settlement-bench.ts'
import { limits, ownerAddress, payoutAddress, terms } from '../support/signing.ts'

// The settlement client before a gateway that answers as Circle's documents say, and fails in every way it can.

const everyFault = [...beforeFaults, ...afterFaults]
// Silence is to the client what a connection that hung up is, and takes as long as its patience.
const quickFaults = everyFault.filter((fault) => fault !== 'silence')
const bench = settlementSuite()
const defaultRuns = 40
const runs = Number(process.env.SETTLEMENT_RUNS ?? defaultRuns)

async function statesOf({ id }: BenchAccount) {
  const rows = await bench.database.query<{ state: string; reason: string | null }>(
    'select state, reason from settlements where account_id = $1',
    [id],
  )
  return rows.map(({ state, reason }) => (reason === null ? state : `${state}: ${reason}`))
}

test('a payment is made once and its account owes nothing any more', async () => {
  const account = await bench.openAccount(10_000n)
  await pay(bench, account, 1_000n, 200n)
  await pay(bench, account, 1_000n, 300n)
  await settleAll(bench)
  await assertSettled(bench, [account])
  assert.deepEqual(await statesOf(account), ['completed', 'completed'])
  assert.deepEqual(bench.alarms, [])
})

for (const reason of errorReasons) {
  test(`a payment refused with ${reason} calls a person, and is made once when it passes`, async () => {
    const account = await bench.openAccount(10_000n)
    await pay(bench, account, 1_000n, 200n)
    bench.gateway.refusals.push(reason)
    await settleOnce(bench)
    const state = reason === 'nonce_already_used' ? 'unknown' : 'allocated'
    assert.deepEqual(await statesOf(account), [`${state}: ${reason}`])
    assert.equal(bench.alarms.length, 1)
    await settleOnce(bench)
    assert.equal(bench.alarms.length, 1, 'a gateway that refuses is not besieged')
    await settleAll(bench)
    await assertSettled(bench, [account])
  })
}

for (const fault of everyFault) {
  test(`a payment that meets ${fault} is made once`, async () => {
    const account = await bench.openAccount(10_000n)
    await pay(bench, account, 1_000n, 200n)
    bench.gateway.faults = (call) => (call.includes('settle') ? fault : undefined)
    await settleOnce(bench)
    await passTime(bench)
    bench.gateway.faults = () => undefined
    bench.gateway.calls.length = 0
    await settleOnce(bench)
    assert.equal(bench.gateway.calls[0], 'GET /v1/x402/transfers', 'it is asked what it has before anything else')
    await settleAll(bench)
    await assertSettled(bench, [account])
  })
}

// Two machines with `jobs`: the first hands a payment in and dies before it writes so, and the other has the next epoch.
test('a payment that was handed in before the epoch was raised is not made a second time under the new one', async () => {
  const { database, parts } = bench
  const account = await bench.openAccount(10_000n)
  for (const epoch of [0, null]) {
    await pay(bench, account, 1_000n, 1_000n)
    await issueReceipts(database, parts.terms)
    // As of a receipt that was written before epochs were kept.
    if (epoch === null) await database.query('update settlements set epoch = null where account_id = $1', [account.id])
    const dies = (name: string) => assert.notEqual(name, 'after_submit')
    await assert.rejects(submitPayments({ ...parts, failpoint: dies }))
    const [row] = await database.query<{ state: string }>(
      `select state from settlements where account_id = $1 and state <> 'completed'`,
      [account.id],
    )
    assert.equal(row!.state, 'allocated')
    const raised = { ...parts, terms: { ...parts.terms, epoch: 1 } }
    await settleAll(Object.create(bench, { parts: { value: raised } }))
    await assertSettled(bench, [account])
  }
  assert.equal([...bench.gateway.transfers.values()].filter(({ from }) => from === account.address).length, 2)
})

test('while the gateway cannot say what it has, nothing is handed in again', async () => {
  const account = await bench.openAccount(10_000n)
  await pay(bench, account, 1_000n, 200n)
  bench.gateway.faults = (call) => (call.includes('settle') ? 'hung up' : 'unavailable')
  await settleOnce(bench)
  await passTime(bench)
  bench.gateway.calls.length = 0
  await settleOnce(bench)
  assert.deepEqual(bench.gateway.calls, ['GET /v1/x402/transfers'])
  await settleAll(bench)
  await assertSettled(bench, [account])
})

test('a nonce that paid the same to the same is ours; one that paid something else is left to a person', async () => {
  const account = await bench.openAccount(10_000n)
  await pay(bench, account, 1_000n, 200n)
  bench.gateway.faults = (call) => (call.includes('settle') ? 'hung up' : undefined)
  await settleOnce(bench)
  const first = [...bench.gateway.transfers.values()].at(-1)
  bench.gateway.transfers.set(first!.id, { ...first!, amount: 999n })
  bench.gateway.faults = () => undefined
  for (let round = 0; round < 3; round += 1) {
    await passTime(bench)
    await settleOnce(bench)
  }
  assert.deepEqual(await statesOf(account), ['unknown: nonce_conflict'])
  assert.deepEqual([...bench.gateway.transfers.values()].at(-1), { ...first!, amount: 999n })
  assert.ok(bench.alarms.includes('a nonce of ours paid something else'))
  bench.gateway.transfers.set(first!.id, first!)
  await settleAll(bench)
  await assertSettled(bench, [account])
})

test('a payment that fails after it was taken becomes a debt, which the next request pays', async () => {
  const account = await bench.openAccount(10_000n)
  await pay(bench, account, 1_000n, 900n)
  await settleOnce(bench)
  const transfer = [...bench.gateway.transfers.values()].at(-1)
  bench.gateway.fail(transfer!.id)
  await passTime(bench)
  await settleOnce(bench)
  const { gateway, credit } = await accountOf(bench, account)
  assert.deepEqual([gateway, credit], [10_000n, -900n])
  assert.deepEqual(await findViolations(bench.database), [])
  await pay(bench, account, 500n, 500n)
  await settleAll(bench)
  await assertSettled(bench, [account])
  assert.equal(bench.gateway.balance(account.address), 8_600n)
})

test('a payment that the gateway has lost is handed in again under the same nonce', async () => {
  const account = await bench.openAccount(10_000n)
  await pay(bench, account, 1_000n, 200n)
  await settleOnce(bench)
  const transfer = [...bench.gateway.transfers.values()].at(-1)
  bench.gateway.lose(transfer!.id)
  await passTime(bench)
  await settleOnce(bench)
  await settleAll(bench)
  const again = [...bench.gateway.transfers.values()].at(-1)
  assert.equal(again!.nonce, transfer!.nonce)
  await assertSettled(bench, [account])
})

test('one payment of which the gateway says nonsense holds up no other', async () => {
  const account = await bench.openAccount(10_000n)
  for (let count = 0; count < 3; count += 1) await pay(bench, account, 1_000n, 1_000n)
  await settleOnce(bench)
  const odd = [...bench.gateway.transfers.values()].at(-1)
  bench.gateway.batch()
  odd!.status = 'in review' as never
  await passTime(bench)
  await settleOnce(bench)
  assert.deepEqual((await statesOf(account)).sort(), ['completed', 'completed', 'received'])
  odd!.status = 'completed'
  await settleAll(bench)
  await assertSettled(bench, [account])
})

test('a payment that waited for a day gets a new window under its nonce', async () => {
  const account = await bench.openAccount(10_000n)
  await pay(bench, account, 1_000n, 200n)
  const age = `update settlements set authorized_at = authorized_at - interval '30 hours' where account_id = $1`
  await bench.database.query(age, [account.id])
  await settleAll(bench)
  await assertSettled(bench, [account])
  assert.deepEqual(bench.alarms, ['a payment waited so long that its window was renewed'])
})

type Step =
  | { readonly kind: 'pay'; readonly account: number; readonly quote: number; readonly part: number }
  | { readonly kind: 'withdraw'; readonly account: number; readonly part: number }
  | {
      readonly kind:
        | 'payout'
        | 'settle'
        | 'batch'
        | 'pay out'
        | 'fail a payment'
        | 'lose a payment'
        | 'fail withdrawals'
    }
  | { readonly kind: 'faults'; readonly faults: readonly (CallFault | 'none')[] }
  | { readonly kind: 'refuse'; readonly reason: (typeof errorReasons)[number] }

const share = fc.integer({ min: 0, max: 100 })
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('pay' as const),
      account: fc.nat(1),
      quote: fc.integer({ min: 1, max: 3_000 }),
      part: share,
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('withdraw' as const), account: fc.nat(1), part: share }),
  },
  { weight: 6, arbitrary: fc.constant({ kind: 'settle' as const }) },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('faults' as const),
      faults: fc.array(fc.constantFrom('none' as const, ...quickFaults), { minLength: 1, maxLength: 4 }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('refuse' as const), reason: fc.constantFrom(...errorReasons) }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constantFrom(
        ...(['payout', 'batch', 'pay out', 'fail a payment', 'lose a payment', 'fail withdrawals'] as const),
      ),
    }),
  },
)

function idsOf(accounts: readonly BenchAccount[]): string[] {
  return accounts.map(({ id }) => id)
}

async function take(accounts: readonly BenchAccount[], done: Step): Promise<void> {
  const { gateway } = bench
  const received = [...gateway.transfers.values()].find(({ status }) => status === 'received')
  switch (done.kind) {
    case 'pay': {
      const account = accounts[done.account]!
      const { spendable } = await accountOf(bench, account)
      const quote = spendable < BigInt(done.quote) ? spendable : BigInt(done.quote)
      if (quote > 0n) await pay(bench, account, quote, (quote * BigInt(done.part)) / 100n)
      return
    }
    case 'withdraw': {
      const account = accounts[done.account]!
      const { spendable } = await accountOf(bench, account)
      const amount = (spendable * BigInt(done.part)) / 100n
      const feeMax = await readWithdrawalFeeMax(bench.database)
      if (amount > feeMax) await bench.funds.withdraw(account, randomUUID(), fromAtomic(amount))
      return
    }
    case 'payout':
      await requestPayout(bench.database, 'all', payoutAddress, async () => gateway.balance(terms.seller)).catch(
        () => {},
      )
      return
    case 'settle':
      await settleOnce(bench)
      return passTime(bench)
    case 'faults': {
      const faults = [...done.faults]
      gateway.faults = () => {
        const next = faults.shift()
        return next === 'none' ? undefined : next
      }
      return
    }
    case 'refuse':
      gateway.refusals.push(done.reason)
      return
    case 'batch':
      return gateway.batch()
    case 'pay out':
      return gateway.payOut()
    case 'fail a payment':
      if (received !== undefined) gateway.fail(received.id)
      return
    case 'lose a payment':
      if (received !== undefined) gateway.lose(received.id)
      return
    case 'fail withdrawals':
      return gateway.failWithdrawals()
  }
}

test('whatever fails, in whatever order, every payment and every withdrawal is made once and nothing is lost', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(0n, 1n, 300n),
      fc.array(step, { minLength: 5, maxLength: 30 }),
      async (fee, steps) => {
        await setFee(bench, fee)
        const accounts = [await bench.openAccount(5_000n), await bench.openAccount(8_000n)]
        for (const account of accounts) await bench.funds.registerOwner(account, ownerAddress, true)
        for (const done of steps) {
          await take(accounts, done)
          if (done.kind === 'settle') assert.deepEqual(await findViolations(bench.database, idsOf(accounts)), [])
        }
        bench.gateway.refusals.length = 0
        await settleAll(bench)
        await assertSettled(bench, accounts)
      },
    ),
    { numRuns: runs },
  )
})

// With SETTLEMENT_RUNS above the default every fault meets every call; the short form has each of both at least once.
test('a withdrawal with credit goes through every fault and pays the owner once', async () => {
  const calls = [
    'POST /v1/x402/settle',
    'GET /v1/x402/transfers',
    'POST /v1/transfer',
    'GET /v1/transfer/',
    'POST /v1/balances',
  ]
  for (const [index, fault] of everyFault.entries()) {
    const met = runs > defaultRuns ? calls : [calls[index % calls.length]!]
    for (const call of met) await withdrawThrough(fault, call)
  }
})

async function withdrawThrough(fault: CallFault, call: string): Promise<void> {
  const account = await bench.openAccount(10_000n)
  await bench.funds.registerOwner(account, ownerAddress, true)
  await pay(bench, account, 4_000n, 1_000n)
  await settleAll(bench)
  const before = bench.gateway.paid.get(ownerAddress) ?? 0n
  const id = randomUUID()
  await bench.funds.withdraw(account, id, fromAtomic(9_000n))
  let left = 2
  bench.gateway.faults = (path) => {
    if (!path.startsWith(call) || left === 0) return undefined
    left -= 1
    return fault
  }
  for (let round = 0; round < 6; round += 1) {
    await settleOnce(bench)
    bench.gateway.batch()
    await passTime(bench)
  }
  await settleAll(bench)
  const withdrawal = await findWithdrawal(bench.database, account.partition, account.id, id)
  assert.equal(withdrawal?.state, 'confirmed', `${call} met ${fault}`)
  assert.equal((bench.gateway.paid.get(ownerAddress) ?? 0n) - before, 9_000n)
  await assertSettled(bench, [account])
}

test('everything can be withdrawn from a gateway with a fee: the fee comes out of it, and not a unit is missing', async () => {
  const account = await bench.openAccount(1_000_000n)
  await bench.funds.registerOwner(account, ownerAddress, true)
  await pay(bench, account, 400_000n, 100_000n)
  await settleAll(bench)
  const feeMax = await setFee(bench, 10_000n)
  assert.equal(feeMax, 25_000n, 'what the gateway says beforehand, and a quarter more')
  const before = bench.gateway.paid.get(ownerAddress) ?? 0n
  const id = randomUUID()
  const { spendable } = await accountOf(bench, account)
  await bench.funds.withdraw(account, id, spendable)
  assert.equal((await accountOf(bench, account)).spendable, 0n, 'all of the fee that may be is set aside')
  await settleAll(bench)
  const paid = await findWithdrawal(bench.database, account.partition, account.id, id)
  assert.deepEqual([paid?.state, paid?.feeMax, paid?.fee], ['confirmed', feeMax, 10_000n])
  assert.equal((bench.gateway.paid.get(ownerAddress) ?? 0n) - before, spendable - feeMax, 'as it was shown')
  assert.equal((await accountOf(bench, account)).spendable, feeMax - 10_000n, 'what was not taken is back')
  await assertSettled(bench, [account])
  assert.deepEqual(bench.alarms, [])
})

test('an amount that the fee may eat up is refused, and one that fails comes back with its fee', async () => {
  const account = await bench.openAccount(100_000n)
  await bench.funds.registerOwner(account, ownerAddress, true)
  const feeMax = await setFee(bench, 10_000n)
  await assert.rejects(bench.funds.withdraw(account, randomUUID(), fromAtomic(feeMax)), { code: 'invalid_value' })
  await bench.funds.withdraw(account, randomUUID(), fromAtomic(feeMax + 1n))
  await settleOnce(bench)
  bench.gateway.failWithdrawals()
  await settleAll(bench)
  assert.equal((await accountOf(bench, account)).spendable, 100_000n)
  await assertSettled(bench, [account])
})

test('a fee that the gateway does not tell counts as taken, and calls a person', async () => {
  const account = await bench.openAccount(100_000n)
  await bench.funds.registerOwner(account, ownerAddress, true)
  const feeMax = await setFee(bench, 10_000n)
  bench.gateway.tellsFees = false
  await bench.funds.withdraw(account, randomUUID(), fromAtomic(50_000n))
  await settleAll(bench)
  assert.equal((await accountOf(bench, account)).spendable, 50_000n)
  assert.equal(
    bench.gateway.balance(account.address),
    50_000n + feeMax - 10_000n,
    'the chain has more than the books say',
  )
  assert.deepEqual(await findViolations(bench.database, [account.id]), [])
  assert.deepEqual(bench.alarms, ['a withdrawal’s fee is not known'])
})

test('a fee above what we pay at most is not paid: the withdrawal is refused and the money is back', async () => {
  const account = await bench.openAccount(100_000n)
  await bench.funds.registerOwner(account, ownerAddress, true)
  assert.equal(await setFee(bench, 60_000n), limits.withdrawalFeeMax)
  await bench.funds.withdraw(account, randomUUID(), fromAtomic(90_000n))
  await settleAll(bench)
  assert.equal((await accountOf(bench, account)).spendable, 100_000n)
  await assertSettled(bench, [account])
})
