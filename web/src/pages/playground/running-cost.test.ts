import assert from 'node:assert/strict'
import { test } from 'node:test'
import { runningCost } from './running-cost.ts'

test('the running cost grows with the answer and counts the prompt', () => {
  const prices = { prompt: '0.000001', completion: '0.000005' }
  assert.equal(runningCost(prices, 40, 0), 10n)
  assert.equal(runningCost(prices, 40, 400), 510n)
})
