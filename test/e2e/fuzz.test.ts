import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { assertBooksClosed } from '../support/audit.ts'
import { exampleCount, seedOf } from '../support/examples.ts'
import { fuzz, loggedCount } from '../support/fuzz.ts'
import { startTestService, type TestService } from '../support/service.ts'

let service: TestService
before(async () => {
  service = await startTestService({ environment: { BODY_BYTES_MAX: '100000' } })
})
after(() => service.stop())

const count = exampleCount('FUZZED_BODIES', { short: 1_000, full: 5_000 })

// FUZZED_BODIES=250000 for the long form, TEST_SEED to repeat one.
test('every input gets a completion or a clean refusal, every one is counted, and the ledger balances', async () => {
  const result = await fuzz(service, { seed: seedOf('TEST_SEED'), count, atOnce: 8 })
  assert.deepEqual(result.problems, [])
  assert.equal(
    Object.values(result.answers).reduce((sum, answers) => sum + answers, 0),
    count,
  )
  // A fuzzer that is refused at the door proves nothing.
  for (const kind of ['200', '400 invalid_json', '400 invalid_value', '404 model_not_found', 'cut']) {
    assert.ok((result.answers[kind] ?? 0) > count / 1_000, `${kind}: ${result.answers[kind]}`)
  }
  const { logged, expected } = await loggedCount(service, result)
  assert.equal(logged, expected)
  await assertBooksClosed(service.database)
})
