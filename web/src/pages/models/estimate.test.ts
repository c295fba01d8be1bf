import assert from 'node:assert/strict'
import { test } from 'node:test'
import { defaultWorkload, estimate, workloadProblems } from './estimate.ts'

const model = {
  pricing: { prompt: '0.000001', completion: '0.000005', input_cache_read: '0.000001', web_search: '0.00875' },
}

test('an estimate is what the ledger charges for the same counts, and a month is that many charges', () => {
  const workload = { input: '18', cached: '50', output: '70', searches: '2', requests: '1000' }
  assert.deepEqual(estimate(model, workload), { perRequest: 17_868n, perMonth: 17_868_000n })
})

test('each request is rounded up on its own', () => {
  const tiny = { pricing: { ...model.pricing, prompt: '0.0000001', completion: '0.0000005' } }
  const workload = { ...defaultWorkload, input: '1', output: '0', requests: '3' }
  assert.deepEqual(estimate(tiny, workload), { perRequest: 1n, perMonth: 3n })
})

test('a workload with invalid numbers is refused field by field', () => {
  assert.deepEqual(workloadProblems(defaultWorkload), {})
  const wrong = { input: '', cached: '101', output: '1.5', searches: '-1', requests: '99999999999999999999' }
  assert.deepEqual(Object.keys(workloadProblems(wrong)), ['input', 'cached', 'output', 'searches', 'requests'])
})
