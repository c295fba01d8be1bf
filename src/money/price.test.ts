import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { cost, unitsFor } from './price.ts'
import { fromAtomic } from './usdc.ts'

const line = fc.record({ units: fc.nat(1_000_000), perMillion: fc.bigInt({ min: 1n, max: 50_000_000n }) })
const lines = fc.array(line, { maxLength: 6 })

test('the sum of all lines is rounded up once: less than one atomic unit is gained, and none is lost', () => {
  fc.assert(
    fc.property(lines, (all) => {
      const exact = all.reduce((sum, { units, perMillion }) => sum + BigInt(units) * perMillion, 0n)
      const gain = cost(all) * 1_000_000n - exact
      assert.ok(gain >= 0n && gain < 1_000_000n)
    }),
  )
})

test('more units never cost less', () => {
  fc.assert(
    fc.property(lines, line, (all, more) => {
      assert.ok(cost([...all, more]) >= cost(all))
    }),
  )
})

test('what an amount buys costs at most the amount, and one more unit costs more', () => {
  fc.assert(
    fc.property(
      fc.bigInt({ min: 0n, max: 10n ** 9n }),
      fc.bigInt({ min: 1n, max: 50_000_000n }),
      (amount, perMillion) => {
        const units = unitsFor(fromAtomic(amount), perMillion)
        assert.ok(cost([{ units, perMillion }]) <= amount)
        assert.ok(cost([{ units: units + 1n, perMillion }]) > amount)
      },
    ),
  )
})

test('a search is a line like any other', () => {
  assert.equal(cost([{ units: 2, perMillion: 8_750_000_000n }]), 17_500n)
})
