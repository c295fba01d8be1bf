import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { assertBooksBalance } from '../../test/support/audit.ts'
import { exampleCount } from '../../test/support/examples.ts'
import { charge, codeOf, openKey, openLedger, openPayer, place, voided } from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { fromAtomic } from '../money/usdc.ts'
import { findAccount } from './accounts.ts'
import type { Hold, Payer } from './hold-calls.ts'

const ledger = ledgerSuite()

/** The rules in ten lines: what one account and its keys allow, request by request. */
class SequentialLedger {
  gateway: bigint
  credit = 0n
  inFlight = 0n
  readonly #cap: bigint
  readonly keys: { readonly limit: bigint | undefined; used: bigint }[]

  constructor(gateway: bigint, cap: bigint, limits: readonly (bigint | undefined)[]) {
    this.gateway = gateway
    this.#cap = cap
    this.keys = limits.map((limit) => ({ limit, used: 0n }))
  }

  place(keyIndex: number, quote: bigint): string {
    const key = this.keys[keyIndex]!
    if (quote > this.#cap) return 'quote_exceeds_cap'
    if (key.limit !== undefined && key.used + quote > key.limit) return 'key_limit_exceeded'
    if (quote > this.gateway + this.credit) return 'insufficient_balance'
    if (this.inFlight + quote > this.#cap) return 'in_flight_cap'
    const fromCredit = this.credit < quote ? this.credit : quote
    this.credit -= fromCredit
    this.gateway -= quote - fromCredit
    this.inFlight += quote
    key.used += quote
    return 'held'
  }
}

const batch = fc.record({
  balance: fc.integer({ min: 0, max: 20_000 }),
  firstCharge: fc.integer({ min: 0, max: 2_000 }),
  limits: fc.array(fc.option(fc.integer({ min: 0, max: 15_000 }), { nil: undefined }), { minLength: 1, maxLength: 3 }),
  calls: fc.array(fc.record({ key: fc.nat(2), quote: fc.integer({ min: 0, max: 6_000 }) }), {
    minLength: 1,
    maxLength: 40,
  }),
})

const cap = 9_000n

test('a batch of any quotes gets the same decisions as its requests one by one', async () => {
  const holds = await openLedger(ledger.database, { cap: '0.009' })
  await fc.assert(
    fc.asyncProperty(batch, async ({ balance, firstCharge, limits, calls }) => {
      const payer = await openPayer(ledger.database, BigInt(balance) + 2_000n)
      // Some credit first, so that the split between credit and gateway is at stake too.
      const [first] = await placeAll([[payer, 2_000n]])
      await holds.end(charge(first!.hold!, BigInt(firstCharge)))

      const keys = await Promise.all(
        limits.map((limit) =>
          openKey(
            ledger.database,
            { partition: payer.partition, id: payer.accountId },
            { limit: limit === undefined ? undefined : fromAtomic(BigInt(limit)) },
          ),
        ),
      )
      const model = new SequentialLedger(
        BigInt(balance),
        cap,
        limits.map((limit) => (limit === undefined ? undefined : BigInt(limit))),
      )
      model.credit = 2_000n - BigInt(firstCharge)

      const expected = calls.map(({ key, quote }) => model.place(key % keys.length, BigInt(quote)))
      const decided = await placeAll(
        calls.map(({ key, quote }) => [{ ...payer, keyId: keys[key % keys.length]! }, BigInt(quote)]),
      )
      assert.deepEqual(
        decided.map(({ code }) => code),
        expected,
      )

      const account = await findAccount(ledger.database, payer.partition, payer.accountId)
      assert.deepEqual(
        [account?.gateway, account?.credit, account?.held],
        [model.gateway, model.credit, model.inFlight],
      )
      await Promise.all(
        decided.flatMap(({ hold }, index) =>
          hold ? [holds.end(index % 2 ? voided(hold) : charge(hold, hold.quote / 3n))] : [],
        ),
      )
    }),
    { numRuns: exampleCount('PROPERTY_RUNS', { short: 15, full: 60 }) },
  )
  await assertBooksBalance(ledger.database)

  /** Calls made in one turn of the event loop travel in one batch, in their order. */
  async function placeAll(
    calls: readonly (readonly [Payer, bigint])[],
  ): Promise<{ code: string; hold: Hold | undefined }[]> {
    const decisions = await Promise.all(calls.map(([payer, quote]) => place(holds, payer, quote)))
    return decisions.map((decision) => ({
      code: codeOf(decision),
      hold: 'hold' in decision ? decision.hold : undefined,
    }))
  }
})
