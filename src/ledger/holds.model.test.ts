import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import fc from 'fast-check'
import { charge, codeOf, openLedger, openPayer, place, voided } from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { updateKey } from '../identity/api-keys.ts'
import { endOrphanedHolds } from '../jobs/end-orphaned-holds.ts'
import { fromAtomic } from '../money/usdc.ts'
import { creditDeposit, findAccount } from './accounts.ts'
import { findViolations } from './audit.ts'
import type { Hold, Holds, Payer } from './holds.ts'
import { endLease, renewLease } from './nodes.ts'

// MODEL_STEPS=1000000 for the long form. fast-check prints the seed and the path of a failure.
const steps = Number(process.env.MODEL_STEPS ?? 20_000)
const stepsPerRun = 200
const cap = 10_000n

const ledger = ledgerSuite()

/** What the ledger must be, in plain numbers: one account, one key, and the requests that are open. */
type Model = {
  gateway: bigint
  credit: bigint
  spent: bigint
  limit: bigint | undefined
  readonly open: Map<number, { quote: bigint; fromCredit: bigint; checkpoint: bigint | undefined }>
  nextRequest: number
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

const inFlight = (model: Model) => [...model.open.values()].reduce((sum, { quote }) => sum + quote, 0n)
const chosen = (model: Model, die: number) => [...model.open.keys()][die % model.open.size]!

/** The decision and its effect, by the rules of docs/operations/hold.md. */
function expectedPlace(model: Model, quote: bigint): string {
  const held = inFlight(model)
  if (quote > cap) return 'quote_exceeds_cap'
  if (model.limit !== undefined && model.spent + held + quote > model.limit) return 'key_limit_exceeded'
  if (quote > model.gateway + model.credit) return 'insufficient_balance'
  if (held + quote > cap) return 'in_flight_cap'
  const fromCredit = model.credit < quote ? model.credit : quote
  model.credit -= fromCredit
  model.gateway -= quote - fromCredit
  model.open.set(model.nextRequest, { quote, fromCredit, checkpoint: undefined })
  return 'held'
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
    assert.deepEqual([account?.gateway, account?.credit, account?.held], [model.gateway, model.credit, inFlight(model)])
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
      const charged = isVoid ? undefined : (hold.quote * BigInt(share)) / 100n
      const end = await real.holds.end(charged === undefined ? voided(hold) : charge(hold, charged))
      assert.deepEqual(end, { endedNow: true, status: isVoid ? 'failed' : 'succeeded', charged: charged ?? 0n })
      expectedEnd(model, request, charged)
      real.open.delete(request)
      real.ended = hold
    }),
  )

const endAgain = fc.constant(
  command('end again', always, async (_, real) => {
    if (real.ended !== undefined) assert.equal((await real.other.end(charge(real.ended, 0n))).endedNow, false)
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
    for (const [request, { quote, checkpoint: tokens }] of [...model.open]) {
      expectedEnd(model, request, tokens === undefined ? undefined : tokens < quote ? tokens : quote)
      real.open.delete(request)
    }
  }),
)

test(`${steps} random steps leave the ledger as a sequential model has it`, async () => {
  const other = await openLedger(ledger.database, { cap: '0.01' })
  const commands = fc.commands(
    [placeOne, placeOne, placeOne, endOne, endOne, endAgain, deposit, limit, checkpoint, crash],
    {
      maxCommands: stepsPerRun,
      size: 'max',
    },
  )
  let taken = 0
  await fc.assert(
    fc.asyncProperty(commands, async (all) => {
      const node = randomUUID()
      const holds = await openLedger(ledger.database, { cap: '0.01', node })
      const payer = await openPayer(ledger.database, 5_000n)
      const real: Real = { payer, node, holds, other, open: new Map(), ended: undefined }
      const setup = () => ({
        model: { gateway: 5_000n, credit: 0n, spent: 0n, limit: undefined, open: new Map(), nextRequest: 0 },
        real,
      })
      await fc.asyncModelRun(setup, all)
      taken += [...all].length
      await Promise.all([...real.open.values()].map((hold) => other.end(voided(hold))))
      assert.deepEqual(await findViolations(ledger.database, [payer.accountId]), [])
    }),
    // The number of commands of a run is drawn too: half of the most on average.
    { numRuns: Math.ceil(steps / (stepsPerRun / 2)), endOnFailure: true },
  )
  console.log(`${taken} steps`)
})
