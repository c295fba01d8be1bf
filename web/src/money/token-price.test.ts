import assert from 'node:assert/strict'
import { test } from 'node:test'
import { formatPerMillion, perMillion } from './format.ts'

test('a price per token is the price for a million, to the atomic unit', () => {
  assert.equal(perMillion('0.000001'), 1_000_000n)
  assert.equal(perMillion('0.000025'), 25_000_000n)
  assert.equal(perMillion('0.0000001'), 100_000n)
  assert.equal(perMillion('0'), 0n)
})

test('prices are compared per million tokens, with cents and as many digits more as they have', () => {
  assert.equal(formatPerMillion('0.000005'), '$5.00')
  assert.equal(formatPerMillion('0.00000125'), '$1.25')
  assert.equal(formatPerMillion('0.000000075'), '$0.075')
  assert.equal(formatPerMillion('0.0012'), '$1,200.00')
  assert.equal(formatPerMillion('0'), '$0.00')
})
