import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { format, fromAtomic, InvalidAmountError, parse } from './usdc.ts'

test('an amount reads back as it was written, to the atomic unit', () => {
  fc.assert(
    fc.property(fc.bigInt({ min: -(10n ** 17n), max: 10n ** 17n }), (units) => {
      assert.equal(parse(format(units)), units)
    }),
  )
})

test('an amount is shown without trailing zeros and without rounding', () => {
  const shown = [0n, 1n, 2_400n, 1_000_000n, 1_250_000n, -8_750n, 123_456_789_000_001n].map((units) =>
    format(fromAtomic(units)),
  )
  assert.deepEqual(shown, ['0', '0.000001', '0.0024', '1', '1.25', '-0.00875', '123456789.000001'])
})

test('what is not a plain decimal with at most six places is refused', () => {
  for (const text of ['', '.', '1.', '.5', '1.0000001', '1e3', '0x10', '1,000', ' 1', 'NaN', '١', '1'.repeat(13)]) {
    assert.throws(() => parse(text), InvalidAmountError, text)
  }
})
