import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import fc from 'fast-check'
import { findViolations } from '../../src/ledger/audit.ts'
import { makeDuePayments } from '../../src/ledger/payments.ts'
import { findWithdrawal, readWithdrawalFeeMax } from '../../src/ledger/withdrawals.ts'
import { fromAtomic } from '../../src/money/usdc.ts'
import { type SettlementFailpointName, settlementFailpointNames } from '../../src/process/failpoints.ts'
import { giveBack } from '../../src/settlement/give-back.ts'
import { requestPayout } from '../../src/settlement/payout.ts'
import { submitPayments } from '../../src/settlement/submit.ts'
import { afterFaults, beforeFaults, type CallFault, errorReasons } from '../support/circle-gateway.ts'
import { earlier } from '../support/earlier.ts'
import { cancelledByClient, charge, hold, serveAgain, voided } from '../support/ledger.ts'
import {
  accountOf,
  assertSettled,
  type BenchAccount,
  dueAtOnce,
  passTime,
  pay,
  paymentsOf,
  setFee,
  settleAll,
  settlementSuite,
  settleOnce,
  unsettledOf,
} from '../support/settlement-bench.ts'
import { limits, ownerAddress, payoutAddress, terms } from '../support/signing.ts'

// The settlement client before a gateway that answers as Circle's documents say, and fails in every way it can.

const everyFault = [...beforeFaults, ...afterFaults]
// Silence is to the client what a connection that hung up is, and takes as long as its patience.
const quickFaults = everyFault.filter((fault) => fault !== 'silence')
const bench = settlementSuite()
/** On Citus a step takes several times as long. */
const defaultRuns = process.env.TEST_CITUS_WORKERS === undefined ? 40 : 5
const runs = Number(process.env.SETTLEMENT_RUNS ?? defaultRuns)

async function statesOf({ id }: BenchAccount) {
  const rows = await bench.database.query<{ state: string; reason: string | null }>(
    'select state, reason from payments where account_id = $1 order by number',
    [id],
  )
  return rows.map(({ state, reason }) => (reason === null ? state : `${state}: ${reason}`))
}

test('requests that ended are paid together, once, and their account owes nothing any more', async () => {
  const account = await bench.openAccount(10_000n)
  await pay(bench, account, 1_000n, 200n)
  await pay(bench, account, 1_000n, 300n)
  await settleAll(bench)
  await assertSettled(bench, [account])
  assert.deepEqual(await paymentsOf(bench, account), [['completed', 1n, 2n, 500n]])
  assert.deepEqual(bench.alarms, [])
})

for (const reason of errorReasons) {
  test(`a payment refused with ${reason} calls a person, and is made once when it passes`, async () => {
    const account = await bench.openAccount(10_000n)
    await pay(bench, account, 1_000n, 200n)
    bench.gateway.refusals.push(reason)
    await settleOnce(bench)
    const state = reason === 'nonce_already_used' ? 'unknown' : 'submitted'
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
test('a payment that was submitted before the epoch was raised is not made a second time under the new one', async () => {
  const { database, parts } = bench
  const account = await bench.openAccount(10_000n)
  await pay(bench, account, 1_000n, 1_000n)
  await makeDuePayments(database, dueAtOnce, parts.terms.epoch)
  const dies = (name: string) => assert.notEqual(name, 'after_submit')
  await assert.rejects(submitPayments({ ...parts, failpoint: dies }))
  assert.deepEqual(await statesOf(account), ['submitted'])
  await pay(bench, account, 1_000n, 700n)
  const raised = { ...parts, terms: { ...parts.terms, epoch: 1 } }
  await settleAll(Object.create(bench, { parts: { value: raised } }))
  await assertSettled(bench, [account])
  assert.deepEqual(
    (await paymentsOf(bench, account)).map(([, , , value]) => value),
    [1_000n, 700n],
  )
})

test('while the gateway cannot say what it has, nothing is submitted again', async () => {
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
  assert.ok(bench.alarms.includes('payment nonce was used by a different transfer'))
  bench.gateway.transfers.set(first!.id, first!)
  await settleAll(bench)
  await assertSettled(bench, [account])
})

test('what a payment that failed has covered is in the next one, under a new number; it is unsettled until then', async () => {
  const account = await bench.openAccount(10_000n)
  await pay(bench, account, 1_000n, 400n)
  await settleAll(bench)
  await pay(bench, account, 1_000n, 900n)
  await settleOnce(bench)
  await pay(bench, account, 1_000n, 50n)
  const transfer = [...bench.gateway.transfers.values()].at(-1)
  bench.gateway.fail(transfer!.id)
  await passTime(bench)
  await settleOnce(bench)
  const { spendable } = await accountOf(bench, account)
  assert.deepEqual([spendable, await unsettledOf(bench, account)], [8_650n, 950n], 'nobody gets the charge back')
  assert.deepEqual(await findViolations(bench.database), [])
  assert.ok(bench.alarms.includes('a payment failed at the gateway'))
  await settleOnce(bench)
  assert.equal((await paymentsOf(bench, account)).length, 2, 'whatever it failed of may last: not at once')
  await settleAll(bench)
  assert.deepEqual(await paymentsOf(bench, account), [
    ['completed', 1n, 1n, 400n],
    ['failed', 2n, 2n, 900n],
    ['completed', 2n, 3n, 950n],
  ])
  const roots = await bench.database.query<{ root: Buffer; previous_root: Buffer | null }>(
    'select root, previous_root from payments where account_id = $1 order by number',
    [account.id],
  )
  assert.deepEqual(
    roots.map(({ previous_root }) => previous_root),
    [null, roots[0]!.root, roots[0]!.root],
    'the chain of roots passes over it',
  )
  const nonces = [...bench.gateway.transfers.values()].filter(({ from }) => from === account.address)
  assert.equal(new Set(nonces.map(({ nonce }) => nonce)).size, 3)
  await assertSettled(bench, [account])
})

test('a payment that the gateway has lost is submitted again under the same nonce', async () => {
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
  const accounts = await Promise.all([1, 2, 3].map(() => bench.openAccount(10_000n)))
  for (const account of accounts) await pay(bench, account, 1_000n, 1_000n)
  await settleOnce(bench)
  const odd = [...bench.gateway.transfers.values()].at(-1)
  bench.gateway.batch()
  odd!.status = 'in review' as never
  await passTime(bench)
  await settleOnce(bench)
  const states = await Promise.all(accounts.map(statesOf))
  assert.deepEqual(states.flat().sort(), ['completed', 'completed', 'received'])
  odd!.status = 'completed'
  await settleAll(bench)
  await assertSettled(bench, accounts)
})

test('a payment that the gateway took is found after its window has expired', async () => {
  const account = await bench.openAccount(10_000n)
  await pay(bench, account, 1_000n, 200n)
  bench.gateway.faults = (path) => (path.includes('settle') ? 'hung up' : undefined)
  await settleOnce(bench)
  assert.match((await statesOf(account))[0]!, /^unknown/)
  const age = `update payments set ${earlier('authorized_at', "interval '9 days'")} where account_id = $1`
  await bench.database.query(age, [account.id])
  await settleAll(bench)
  assert.deepEqual(await statesOf(account), ['completed'])
  await assertSettled(bench, [account])
})

test('a payment that waited for a day gets a new window under its nonce', async () => {
  const account = await bench.openAccount(10_000n)
  await pay(bench, account, 1_000n, 200n)
  await makeDuePayments(bench.database, dueAtOnce, 0)
  const age = `update payments set ${earlier('authorized_at', "interval '30 hours'")} where account_id = $1`
  await bench.database.query(age, [account.id])
  await settleAll(bench)
  await assertSettled(bench, [account])
  assert.deepEqual(bench.alarms, ['the validity window of a waiting payment was renewed'])
})

type Step =
  | { readonly kind: 'pay'; readonly account: number; readonly quote: number; readonly part: number }
  | { readonly kind: 'withdraw' | 'give back' | 'take back'; readonly account: number; readonly part: number }
  | { readonly kind: 'void' | 'retry'; readonly account: number }
  | { readonly kind: 'crash'; readonly at: SettlementFailpointName; readonly reach: number }
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
    arbitrary: fc.record({
      kind: fc.constantFrom('withdraw' as const, 'give back' as const, 'take back' as const),
      account: fc.nat(1),
      part: share,
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constantFrom('void' as const, 'retry' as const), account: fc.nat(1) }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('crash' as const),
      at: fc.constantFrom(...settlementFailpointNames.filter((name) => !/sweep|credit|refund/.test(name))),
      reach: fc.integer({ min: 1, max: 2 }),
    }),
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
    case 'give back':
    case 'take back': {
      const account = accounts[done.account]!
      const [room] = await bench.database.query<{ given: bigint; left: bigint }>(
        'select given_back as given, charged - given_back as left from accounts where id = $1',
        [account.id],
      )
      const isGift = done.kind === 'give back'
      const amount = ((isGift ? room!.left : room!.given) * BigInt(done.part)) / 100n
      if (amount === 0n) return
      const adjustment = { id: randomUUID(), amount: isGift ? amount : -amount, reason: 'test', madeBy: 'test' }
      // Refused where the seller does not have it, or where the account has spent it.
      await giveBack(bench.database, account, adjustment, sellerBalance).catch(() => {})
      return
    }
    case 'void':
    case 'retry': {
      const account = accounts[done.account]!
      if ((await accountOf(bench, account)).spendable < 400n) return
      const placed = await hold(bench.holds, account, 200n)
      if (done.kind === 'void') return void (await bench.holds.end(voided(placed)))
      await bench.holds.end(charge(placed, 90n, cancelledByClient))
      await serveAgain(bench.database, bench.holds, account, [placed.requestId, 90n])
      return
    }
    case 'crash':
      return crash(done.at, done.reach)
    case 'payout':
      await requestPayout(bench.database, 'all', payoutAddress, sellerBalance).catch(() => {})
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

const sellerBalance = async () => bench.gateway.balance(terms.seller)

/** One round of settlement whose process dies when it passes that place for the n-th time. */
async function crash(at: SettlementFailpointName, reach: number): Promise<void> {
  let passed = 0
  const failpoint = (name: SettlementFailpointName) => {
    if (name !== at) return
    passed += 1
    if (passed === reach) throw new Error('killed')
  }
  const dying = Object.create(bench, { parts: { value: { ...bench.parts, failpoint } } })
  await settleOnce(dying).catch((error: Error) => assert.equal(error.message, 'killed'))
  await passTime(bench)
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
          if (done.kind !== 'settle' && done.kind !== 'crash') continue
          assert.deepEqual(await findViolations(bench.database, idsOf(accounts)), [])
        }
        bench.gateway.refusals.length = 0
        await settleAll(bench)
        await assertSettled(bench, accounts)
        await setFee(bench, 0n)
        for (const account of accounts) {
          const { spendable } = await accountOf(bench, account)
          if (spendable > 0n) await bench.funds.withdraw(account, randomUUID(), spendable)
        }
        await settleAll(bench)
        await assertSettled(bench, accounts)
        for (const account of accounts) {
          assert.deepEqual([await unsettledOf(bench, account), bench.gateway.balance(account.address)], [0n, 0n])
        }
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
    'the chain has more than the ledger says',
  )
  assert.deepEqual(await findViolations(bench.database, [account.id]), [])
  assert.deepEqual(bench.alarms, ['the fee of a withdrawal is not known'])
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
