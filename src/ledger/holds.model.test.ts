import assert from 'node:assert/strict'
import { randomBytes, randomUUID } from 'node:crypto'
import { test } from 'node:test'
import fc from 'fast-check'
import { exampleCount, seedOf } from '../../test/support/examples.ts'
import {
  cancelledByClient,
  charge,
  codeOf,
  holdCall,
  openLedger,
  openPayer,
  searched,
  searchPrice,
  voided,
} from '../../test/support/ledger.ts'
import {
  expectEnd,
  expectExtension,
  expectPlace,
  held,
  type Model,
  newModel,
  openWithdrawals,
  rules,
} from '../../test/support/ledger-model.ts'
import {
  compareAccount,
  countEvents,
  type NamedStep,
  paymentSteps,
  type Real,
  type Step,
  settleAll,
  voidAll,
} from '../../test/support/model-payments.ts'
import { progressLines, recordProof } from '../../test/support/proof.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { updateKey } from '../identity/api-keys.ts'
import { endOrphanedHolds } from '../jobs/end-orphaned-holds.ts'
import { format, fromAtomic } from '../money/usdc.ts'
import { setUnsettledCap } from './accounts.ts'
import { findViolations } from './audit.ts'
import { assignAddress } from './deposit-addresses.ts'
import { creditDeposit } from './deposits.ts'
import { readLiabilities } from './liabilities.ts'
import { endLease, renewLease } from './nodes.ts'
import { setWithdrawalFeeMax } from './withdrawals.ts'

// MODEL_STEPS=1000000 for the long form, TEST_SEED to repeat one. fast-check prints the seed and the path of a failure.
const stepsOfFull = 20_000
const steps = exampleCount('MODEL_STEPS', { short: 2_000, full: stepsOfFull })
const isLong = steps > stepsOfFull
const seed = seedOf('TEST_SEED')
const stepsPerRun = 200
// Concurrent runs, each with its own account and nodes: a step mostly waits for a commit, which the runs share.
const lanes = 8
const cap = format(fromAtomic(rules.inFlightCap))

const ledger = ledgerSuite()

type Command = fc.AsyncCommand<Model, Real>

const command = ({ name, check, run }: NamedStep): Command => ({
  check,
  async run(model, real) {
    await run(model, real)
    await compareAccount(model, real)
  },
  toString: () => name,
})

const step = (name: string, check: NamedStep['check'], run: Step): NamedStep => ({ name, check, run })
const chosen = (model: Model, die: number) => [...model.open.keys()][die % model.open.size]!
const always = () => true
const isOpen = ({ isClosed }: Model) => !isClosed
const someOpen = (model: Model) => model.open.size > 0

const anyQuote = fc.oneof({ weight: 4, arbitrary: fc.nat(1_500) }, { weight: 1, arbitrary: fc.nat(11_000) })
const placeOne = anyQuote.map((quote) =>
  step(`place ${quote}`, isOpen, async (model, real) => {
    const call = holdCall(real.payer, BigInt(quote))
    const decision = await real.holds.place(call)
    assert.equal(codeOf(decision), expectPlace(model, BigInt(quote)))
    if ('hold' in decision) {
      real.open.set(model.nextRequest, decision.hold)
      assert.deepEqual(await real.holds.place(call), decision)
    }
    model.nextRequest += 1
  }),
)

const endOne = fc
  .record({
    die: fc.nat(1_000),
    share: fc.integer({ min: 0, max: 100 }),
    how: fc.constantFrom('charge', 'cancel', 'void'),
  })
  .map(({ die, share, how }) =>
    step(`${how} ${die} ${share} %`, someOpen, async (model, real) => {
      const request = chosen(model, die)
      const hold = real.open.get(request)!
      const { quote, extended, searches } = model.open.get(request)!
      const searchCost = BigInt(searches) * searchPrice
      // Whatever the share, the searches that ran are part of it.
      const rest = ((quote + extended - searchCost) * BigInt(share)) / 100n
      const charged = how === 'void' ? undefined : searchCost + rest
      const isCancelled = how === 'cancel'
      const lines = { searchCost: fromAtomic(searchCost), searchCalls: searches, ...(isCancelled && cancelledByClient) }
      const end = await real.holds.end(charged === undefined ? voided(hold) : charge(hold, charged, lines))
      const status = { charge: 'succeeded', cancel: 'cancelled', void: 'failed' }[how]
      assert.deepEqual(end, { endedNow: true, status, charged: charged ?? 0n })
      expectEnd(model, request, charged, isCancelled)
      real.open.delete(request)
      real.ended.set(request, hold)
      real.lastEnded = hold
    }),
  )

const extendOne = fc.record({ die: fc.nat(1_000), total: fc.integer({ min: 0, max: 20_000 }) }).map(({ die, total }) =>
  step(`extend ${die} to ${total}`, someOpen, async (model, real) => {
    const request = chosen(model, die)
    const { requestId, payer } = real.open.get(request)!
    const call = { requestId, payer, total: fromAtomic(BigInt(total)) }
    const expected = expectExtension(model, request, BigInt(total))
    // The second time, as after a lost reply: it changes nothing.
    assert.deepEqual([await real.holds.extend(call), await real.holds.extend(call)], [expected, expected])
  }),
)

const searchOne = fc.nat(1_000).map((die) =>
  step(`search ${die}`, someOpen, async (model, real) => {
    const request = chosen(model, die)
    const open = model.open.get(request)!
    const total = open.extended + searchPrice
    const { requestId, payer } = real.open.get(request)!
    const expected = expectExtension(model, request, total)
    assert.equal(await real.holds.extend({ requestId, payer, total: fromAtomic(total) }), expected)
    if (expected !== 'extended') return
    open.searches += 1
    real.holds.recordToolCall(searched(real.open.get(request)!, open.searches))
    await real.holds.drained()
  }),
)

const endAgain = fc.constant(
  step('end again', always, async (_, real) => {
    if (real.lastEnded === undefined) return
    const { requestId, payer } = real.lastEnded
    assert.equal((await real.other.end(charge(real.lastEnded, 0n))).endedNow, false)
    assert.equal(await real.holds.extend({ requestId, payer, total: fromAtomic(1n) }), 'ended')
  }),
)

const deposit = fc.integer({ min: 1, max: 20_000 }).map((amount) =>
  step(`deposit ${amount}`, always, async (model, real) => {
    const made = { ...real.payer, id: randomUUID(), amount: fromAtomic(BigInt(amount)), source: 'model' }
    assert.deepEqual(
      [await creditDeposit(ledger.database, made), await creditDeposit(ledger.database, made)],
      [true, false],
    )
    model.gateway += BigInt(amount)
    model.onChain += BigInt(amount)
  }),
)

const limit = fc.option(fc.integer({ min: 0, max: 60_000 }), { nil: null, freq: 1 }).map((amount) =>
  step(`limit ${amount}`, always, async (model, real) => {
    await updateKey(ledger.database, real.payer.keyId, { limit: amount === null ? null : fromAtomic(BigInt(amount)) })
    model.limit = amount === null ? undefined : BigInt(amount)
  }),
)

const checkpoint = fc.record({ die: fc.nat(1_000), tokens: fc.nat(500) }).map(({ die, tokens }) =>
  step(`checkpoint ${die} ${tokens}`, someOpen, async (model, real) => {
    const request = chosen(model, die)
    const { requestId } = real.open.get(request)!
    real.holds.checkpoint({ requestId, partition: real.payer.partition, promptTokens: 0, completionTokens: tokens })
    await real.holds.drained()
    const known = model.open.get(request)!
    if (known.checkpoint === undefined || known.checkpoint < tokens) known.checkpoint = BigInt(tokens)
  }),
)

const crash = fc.constant(
  step('crash', always, async (model, real) => {
    await endLease(ledger.database, real.node)
    await endOrphanedHolds(ledger.database, real.other)
    await renewLease(ledger.database, real.node, 3_600_000)
    for (const [request, { quote, extended, checkpoint: tokens, searches }] of [...model.open]) {
      const most = quote + extended
      const proved = tokens === undefined ? undefined : tokens + BigInt(searches) * searchPrice
      expectEnd(model, request, proved === undefined || proved < most ? proved : most)
      real.ended.set(request, real.open.get(request)!)
      real.open.delete(request)
    }
  }),
)

test(`${steps} random steps leave the ledger as a sequential model has it (seed ${seed})`, async (t) => {
  const printProgress = isLong ? progressLines('steps', steps) : () => {}
  await setUnsettledCap(ledger.database, fromAtomic(rules.unsettledCap))
  await setWithdrawalFeeMax(ledger.database, rules.withdrawalFeeMax)
  let taken = 0
  const onRun = (count: number) => {
    taken += count
    printProgress(taken)
  }
  await Promise.all(Array.from({ length: lanes }, (_, lane) => walk(seed + lane, onRun)))
  const seen = await countEvents(ledger.database)
  t.diagnostic(JSON.stringify(seen))
  // Steps that never happen prove nothing. On other databases fewer steps are taken, and some may not happen.
  // In fewer steps chance may leave one out.
  if (steps >= stepsOfFull) for (const [event, count] of Object.entries(seen)) assert.ok(count > 0, event)
  if (isLong) recordProof('model', { seed, lanes, steps: taken, differences: 0, seen })
})

// Frequent ones more than once.
const holdSteps = [
  ...Array.from({ length: 6 }, () => placeOne),
  ...Array.from({ length: 5 }, () => endOne),
  extendOne,
  searchOne,
  endAgain,
  deposit,
  deposit,
  limit,
  checkpoint,
  crash,
]

/** Whatever is open: the account is owed what the model says, and the balances of all add up to the running totals. */
async function compareLiability(model: Model, { database, payer }: Real): Promise<void> {
  const { accounts, amounts, booked } = await readLiabilities(database)
  const waiting = openWithdrawals(model).reduce((sum, { amount }) => sum + amount, 0n)
  const owed = model.gateway + model.credit + held(model) + waiting
  assert.equal(amounts[accounts.indexOf(payer.accountId)] ?? 0n, owed)
  assert.equal(
    amounts.reduce((sum, amount) => sum + amount, 0n),
    booked,
  )
}

/** One lane's share of the steps, and no fewer. */
async function walk(laneSeed: number, onRun: (steps: number) => void): Promise<void> {
  const { database } = ledger
  const other = await openLedger(database, { cap })
  const commands = fc.commands(
    [...holdSteps, ...paymentSteps].map((one) => one.map(command)),
    { maxCommands: stepsPerRun, size: 'max' },
  )
  let left = steps / lanes
  const property = fc.asyncProperty(commands, async (all) => {
    const node = randomUUID()
    const holds = await openLedger(database, { cap, node })
    const payer = await openPayer(database, 5_000n)
    const account = { partition: payer.partition, id: payer.accountId }
    await assignAddress(database, { ...account, address: `0x${randomBytes(20).toString('hex')}` })
    const real: Real = { database, payer, node, holds, other, open: new Map(), ended: new Map(), lastEnded: undefined }
    const model = newModel(5_000n)
    await fc.asyncModelRun(() => ({ model, real }), all)
    const taken = [...all].length
    left -= taken
    onRun(taken)
    await compareLiability(model, real)
    await voidAll(model, real)
    await settleAll(model, real)
    await compareAccount(model, real)
    assert.deepEqual(await findViolations(database, [payer.accountId]), [])
  })
  // The number of commands of a run is random too, on average half of the maximum, so one run may not be enough.
  for (let go = 0; left > 0; go += 1)
    await fc.assert(property, {
      seed: laneSeed + go * lanes,
      numRuns: Math.ceil(left / (stepsPerRun / 2)),
      endOnFailure: true,
    })
}
