import assert from 'node:assert/strict'
import { test } from 'node:test'
import { perMillion, runningCost } from './running-cost.ts'

test('a price per token is the price for a million, to the atomic unit', () => {
  assert.equal(perMillion('0.000001'), 1_000_000n)
  assert.equal(perMillion('0.000025'), 25_000_000n)
  assert.equal(perMillion('0.0000001'), 100_000n)
  assert.equal(perMillion('0'), 0n)
})

test('the running cost grows with the answer and counts the prompt', () => {
  const prices = { prompt: '0.000001', completion: '0.000005' }
  assert.equal(runningCost(prices, 40, 0), 10n)
  assert.equal(runningCost(prices, 40, 400), 510n)
})
