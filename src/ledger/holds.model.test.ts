import assert from 'node:assert/strict'
import { randomInt, randomUUID } from 'node:crypto'
import { test } from 'node:test'
import fc from 'fast-check'
import {
  charge,
  codeOf,
  openLedger,
  openPayer,
  place,
  searched,
  searchPrice,
  voided,
} from '../../test/support/ledger.ts'
import { progressLines, recordProof } from '../../test/support/proof.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { updateKey } from '../identity/api-keys.ts'
import { endOrphanedHolds } from '../jobs/end-orphaned-holds.ts'
import { fromAtomic } from '../money/usdc.ts'
import { findAccount } from './accounts.ts'
import { findViolations } from './audit.ts'
import { creditDeposit } from './deposits.ts'
import type { Hold, Payer } from './hold-calls.ts'
import type { Holds } from './holds.ts'
import { endLease, renewLease } from './nodes.ts'

// MODEL_STEPS=1000000 for the long form, MODEL_SEED to repeat one. fast-check prints the seed and the path of a failure.
const stepsOfTests = 20_000
const steps = Number(process.env.MODEL_STEPS ?? stepsOfTests)
// Other databases and many partitions are walked over with fewer: those leave no note either.
const isLong = steps > stepsOfTests
const seed = Number(process.env.MODEL_SEED ?? randomInt(2 ** 31 - 1))
const stepsPerRun = 200
// Runs beside each other, each with an account and nodes of its own: a step is mostly waiting for a commit, which they share.
const lanes = 8
const cap = 10_000n

const ledger = ledgerSuite()

/** What the ledger must be, in plain numbers: one account, one key, and the requests that are open. */
type Model = {
  gateway: bigint
  credit: bigint
  spent: bigint
  limit: bigint | undefined
  readonly open: Map<number, OpenRequest>
  nextRequest: number
}

type OpenRequest = {
  readonly quote: bigint
  readonly fromCredit: bigint
  extended: bigint
  checkpoint: bigint | undefined
  searches: number
}

type Real = {
  readonly payer: Payer
  readonly node: string
  readonly holds: Holds
  readonly other: Holds
  readonly open: Map<number, Hold>
  ended: Hold | undefined
}

type Command = fc.AsyncCommand<Model, Real>

const held = (model: Model) => [...model.open.values()].reduce((sum, { quote }) => sum + quote, 0n)
const extended = (model: Model) => [...model.open.values()].reduce((sum, request) => sum + request.extended, 0n)
const inFlight = (model: Model) => held(model) + extended(model)
const spendable = (model: Model) => model.gateway + model.credit - extended(model)
const chosen = (model: Model, die: number) => [...model.open.keys()][die % model.open.size]!

/** The decision and its effect, by the rules of docs/operations/hold.md. */
function expectedPlace(model: Model, quote: bigint): string {
  if (quote > cap) return 'quote_exceeds_cap'
  if (model.limit !== undefined && model.spent + inFlight(model) + quote > model.limit) return 'key_limit_exceeded'
  if (quote > spendable(model)) return 'insufficient_balance'
  if (inFlight(model) + quote > cap) return 'in_flight_cap'
  const fromCredit = model.credit < quote ? model.credit : quote
  model.credit -= fromCredit
  model.gateway -= quote - fromCredit
  model.open.set(model.nextRequest, { quote, fromCredit, extended: 0n, checkpoint: undefined, searches: 0 })
  return 'held'
}

/** The same guards, for what is more than before. */
function expectedExtension(model: Model, request: number, total: bigint): string {
  const open = model.open.get(request)!
  const more = total - open.extended
  if (more <= 0n) return 'extended'
  if (model.limit !== undefined && model.spent + inFlight(model) + more > model.limit) return 'key_limit_exceeded'
  if (more > spendable(model)) return 'insufficient_balance'
  if (inFlight(model) + more > cap) return 'in_flight_cap'
  open.extended = total
  return 'extended'
}

function expectedEnd(model: Model, request: number, charged: bigint | undefined): void {
  const { quote, fromCredit } = model.open.get(request)!
  model.open.delete(request)
  if (charged === undefined) {
    model.gateway += quote - fromCredit
    model.credit += fromCredit
  } else {
    model.credit += quote - charged
    model.spent += charged
  }
}

const command = (
  name: string,
  check: (model: Model) => boolean,
  run: (model: Model, real: Real) => Promise<void>,
): Command => ({
  check,
  async run(model, real) {
    await run(model, real)
    const account = await findAccount(ledger.database, real.payer.partition, real.payer.accountId)
    assert.deepEqual(
      [account?.gateway, account?.credit, account?.held, account?.spendable],
      [model.gateway, model.credit, held(model), spendable(model)],
    )
  },
  toString: () => name,
})

const always = () => true
const someOpen = (model: Model) => model.open.size > 0

const placeOne = fc.integer({ min: 0, max: 11_000 }).map((quote) =>
  command(`place ${quote}`, always, async (model, real) => {
    const decision = await place(real.holds, real.payer, BigInt(quote))
    assert.equal(codeOf(decision), expectedPlace(model, BigInt(quote)))
    if ('hold' in decision) {
      real.open.set(model.nextRequest, decision.hold)
      assert.deepEqual(await place(real.holds, real.payer, BigInt(quote), decision.hold.requestId), decision)
    }
    model.nextRequest += 1
  }),
)

const endOne = fc
  .record({ die: fc.nat(1_000), share: fc.integer({ min: 0, max: 100 }), isVoid: fc.boolean() })
  .map(({ die, share, isVoid }) =>
    command(isVoid ? `void ${die}` : `charge ${die} ${share} %`, someOpen, async (model, real) => {
      const request = chosen(model, die)
      const hold = real.open.get(request)!
      const { quote, extended, searches } = model.open.get(request)!
      const searchCost = BigInt(searches) * searchPrice
      // Whatever the share, the searches that ran are part of it.
      const rest = ((quote + extended - searchCost) * BigInt(share)) / 100n
      const charged = isVoid ? undefined : searchCost + rest
      const lines = { searchCost: fromAtomic(searchCost), searchCalls: searches }
      const end = await real.holds.end(charged === undefined ? voided(hold) : charge(hold, charged, lines))
      assert.deepEqual(end, { endedNow: true, status: isVoid ? 'failed' : 'succeeded', charged: charged ?? 0n })
      expectedEnd(model, request, charged)
      real.open.delete(request)
      real.ended = hold
    }),
  )

const extendOne = fc.record({ die: fc.nat(1_000), total: fc.integer({ min: 0, max: 20_000 }) }).map(({ die, total }) =>
  command(`extend ${die} to ${total}`, someOpen, async (model, real) => {
    const request = chosen(model, die)
    const { requestId, payer } = real.open.get(request)!
    const call = { requestId, payer, total: fromAtomic(BigInt(total)) }
    const expected = expectedExtension(model, request, BigInt(total))
    // The second time its reply was lost: it is said again and changes nothing.
    assert.deepEqual([await real.holds.extend(call), await real.holds.extend(call)], [expected, expected])
  }),
)

const searchOne = fc.nat(1_000).map((die) =>
  command(`search ${die}`, someOpen, async (model, real) => {
    const request = chosen(model, die)
    const open = model.open.get(request)!
    const total = open.extended + searchPrice
    const { requestId, payer } = real.open.get(request)!
    const expected = expectedExtension(model, request, total)
    assert.equal(await real.holds.extend({ requestId, payer, total: fromAtomic(total) }), expected)
    if (expected !== 'extended') return
    open.searches += 1
    real.holds.recordToolCall(searched(real.open.get(request)!, open.searches))
    await real.holds.drained()
  }),
)

const endAgain = fc.constant(
  command('end again', always, async (_, real) => {
    if (real.ended === undefined) return
    const { requestId, payer } = real.ended
    assert.equal((await real.other.end(charge(real.ended, 0n))).endedNow, false)
    assert.equal(await real.holds.extend({ requestId, payer, total: fromAtomic(1n) }), 'ended')
  }),
)

const deposit = fc.integer({ min: 1, max: 20_000 }).map((amount) =>
  command(`deposit ${amount}`, always, async (model, real) => {
    const made = { ...real.payer, id: randomUUID(), amount: fromAtomic(BigInt(amount)), source: 'model' }
    assert.deepEqual(
      [await creditDeposit(ledger.database, made), await creditDeposit(ledger.database, made)],
      [true, false],
    )
    model.gateway += BigInt(amount)
  }),
)

const limit = fc.option(fc.integer({ min: 0, max: 60_000 }), { nil: null }).map((amount) =>
  command(`limit ${amount}`, always, async (model, real) => {
    await updateKey(ledger.database, real.payer.keyId, { limit: amount === null ? null : fromAtomic(BigInt(amount)) })
    model.limit = amount === null ? undefined : BigInt(amount)
  }),
)

const checkpoint = fc.record({ die: fc.nat(1_000), tokens: fc.nat(500) }).map(({ die, tokens }) =>
  command(`checkpoint ${die} ${tokens}`, someOpen, async (model, real) => {
    const request = chosen(model, die)
    const { requestId } = real.open.get(request)!
    real.holds.checkpoint({ requestId, partition: real.payer.partition, promptTokens: 0, completionTokens: tokens })
    await real.holds.drained()
    const known = model.open.get(request)!
    if (known.checkpoint === undefined || known.checkpoint < tokens) known.checkpoint = BigInt(tokens)
  }),
)

const crash = fc.constant(
  command('crash', always, async (model, real) => {
    await endLease(ledger.database, real.node)
    await endOrphanedHolds(ledger.database, real.other)
    await renewLease(ledger.database, real.node, 3_600_000)
    for (const [request, { quote, extended, checkpoint: tokens, searches }] of [...model.open]) {
      const most = quote + extended
      const proved = tokens === undefined ? undefined : tokens + BigInt(searches) * searchPrice
      expectedEnd(model, request, proved === undefined || proved < most ? proved : most)
      real.open.delete(request)
    }
  }),
)

test(`${steps} random steps leave the ledger as a sequential model has it (seed ${seed})`, async () => {
  const tell = isLong ? progressLines('steps', steps) : () => {}
  let taken = 0
  const onRun = (count: number) => {
    taken += count
    tell(taken)
  }
  await Promise.all(Array.from({ length: lanes }, (_, lane) => walk(seed + lane, onRun)))
  if (isLong) recordProof('model', { seed, lanes, steps: taken, differences: 0 })
})

/** One lane's share of the steps, and no fewer. */
async function walk(laneSeed: number, onRun: (steps: number) => void): Promise<void> {
  const other = await openLedger(ledger.database, { cap: '0.01' })
  const commands = fc.commands(
    [placeOne, placeOne, placeOne, extendOne, searchOne, endOne, endOne, endAgain, deposit, limit, checkpoint, crash],
    { maxCommands: stepsPerRun, size: 'max' },
  )
  let left = steps / lanes
  const property = fc.asyncProperty(commands, async (all) => {
    const node = randomUUID()
    const holds = await openLedger(ledger.database, { cap: '0.01', node })
    const payer = await openPayer(ledger.database, 5_000n)
    const real: Real = { payer, node, holds, other, open: new Map(), ended: undefined }
    const setup = () => ({
      model: { gateway: 5_000n, credit: 0n, spent: 0n, limit: undefined, open: new Map(), nextRequest: 0 },
      real,
    })
    await fc.asyncModelRun(setup, all)
    const taken = [...all].length
    left -= taken
    onRun(taken)
    await Promise.all([...real.open.values()].map((hold) => other.end(voided(hold))))
    assert.deepEqual(await findViolations(ledger.database, [payer.accountId]), [])
  })
  // The number of commands of a run is drawn too: half of the most on average, so that a first go may fall short.
  for (let go = 0; left > 0; go += 1)
    await fc.assert(property, {
      seed: laneSeed + go * lanes,
      numRuns: Math.ceil(left / (stepsPerRun / 2)),
      endOnFailure: true,
    })
}
