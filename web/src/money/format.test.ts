import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { formatAmount, formatAxis, formatCharge, formatExact, formatMillionths, formatPrice } from './format.ts'

const amount = fc.bigInt({ min: 0n, max: 10n ** 15n })

test('an amount above zero is never shown as zero, nor as more than there is', () => {
  assert.deepEqual(
    [0n, 1n, 42n, 5_236n, 5_000n, 10_000n, 78_437n, 100_000n, 999_999n, 2_000_000n, 24_999_999n].map(formatAmount),
    [
      '$0.00',
      '$0.000001',
      '$0.000042',
      '$0.005236',
      '$0.005',
      '$0.01',
      '$0.0784',
      '$0.10',
      '$0.9999',
      '$2.00',
      '$24.99',
    ],
  )
  assert.equal(formatAmount(1_234_567_890_000n), '$1,234,567.89')
  assert.equal(formatAmount(-5_000_001n), '−$5.00')
  fc.assert(
    fc.property(fc.oneof(amount, fc.bigInt({ min: 0n, max: 2_000_000n })), (units) => {
      const [whole, fraction] = formatAmount(units).replace(/[$,]/g, '').split('.')
      const shown = BigInt(whole!) * 1_000_000n + BigInt(fraction!.padEnd(6, '0'))
      assert.ok(shown <= units && (units === 0n || shown > 0n), `${units}: ${shown}`)
      assert.ok((units - shown) * 100n <= units, 'what is cut is less than one percent')
    }),
  )
})

test('what one request cost is shown with all six decimals, and reads back to the atomic unit', () => {
  assert.equal(formatCharge(0n), '$0.000000')
  assert.equal(formatCharge(1_873n), '$0.001873')
  fc.assert(fc.property(amount, (units) => assert.equal(BigInt(formatCharge(units).replace(/[^\d]/g, '')), units)))
  fc.assert(fc.property(amount, (units) => assert.equal(BigInt(formatExact(units).replace(/[^\d]/g, '')), units)))
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

test('prices are written plainly', () => {
  assert.equal(formatPrice('5'), '$5.00')
  assert.equal(formatPrice('0.00875'), '$0.00875')
})
