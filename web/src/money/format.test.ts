import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import {
  formatAxis,
  formatBalance,
  formatCharge,
  formatExact,
  formatMillionths,
  formatPercent,
  formatPrice,
  formatSum,
} from './format.ts'

const amount = fc.bigInt({ min: 0n, max: 10n ** 15n })

test('a balance shows two decimals and never more than there is', () => {
  assert.equal(formatBalance(24_999_999n), '$24.99')
  assert.equal(formatBalance(1_234_567_890_000n), '$1,234,567.89')
  assert.equal(formatBalance(-5_000_001n), '−$5.00')
  fc.assert(
    fc.property(amount, (units) => {
      const shown = BigInt(formatBalance(units).replace(/[^\d]/g, '')) * 10_000n
      assert.ok(shown <= units && units - shown < 10_000n)
    }),
  )
})

test('what one request cost is shown with all six decimals, and reads back to the atomic unit', () => {
  assert.equal(formatCharge(0n), '$0.000000')
  assert.equal(formatCharge(1_873n), '$0.001873')
  fc.assert(fc.property(amount, (units) => assert.equal(BigInt(formatCharge(units).replace(/[^\d]/g, '')), units)))
  fc.assert(fc.property(amount, (units) => assert.equal(BigInt(formatExact(units).replace(/[^\d]/g, '')), units)))
})

test('a sum has the decimals that its size makes readable', () => {
  assert.deepEqual([0n, 42n, 99_999n, 100_000n, 9_999_999n, 10_000_000n].map(formatSum), [
    '$0.00',
    '$0.000042',
    '$0.099999',
    '$0.1000',
    '$9.9999',
    '$10.00',
  ])
})

test('an axis has no needless zeros', () => {
  assert.deepEqual([0n, 5_000n, 15_000n, 200_000n, 1_000_000n].map(formatAxis), [
    '$0.00',
    '$0.005',
    '$0.015',
    '$0.20',
    '$1.00',
  ])
})

test('a line of a charge shows what is below an atomic unit too', () => {
  assert.equal(formatMillionths(12_000_000n), '$0.000012')
  assert.equal(formatMillionths(12_345_600n), '$0.0000123456')
  assert.equal(formatMillionths(400_000n), '$0.0000004')
})

test('prices and shares are written plainly', () => {
  assert.equal(formatPrice('5'), '$5.00')
  assert.equal(formatPrice('0.00875'), '$0.00875')
  assert.deepEqual(
    [formatPercent(0, 0), formatPercent(1, 3), formatPercent(1, 200), formatPercent(1, 2)],
    ['0 %', '33 %', '0.5 %', '50 %'],
  )
})
