import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isAmount } from './format.ts'

test('an amount is a decimal above zero with at most six decimals', () => {
  for (const text of ['1', '0.01', '0.000001', '999999999999.999999']) assert.ok(isAmount(text), text)
  for (const text of ['', '0', '0.00', '-1', '1e3', '1.0000001', 'ten', '.5', '1.', '1,5', ' 1', '1000000000000'])
    assert.ok(!isAmount(text), text)
})
