import assert from 'node:assert/strict'
import { test } from 'node:test'
import { testsNear } from './near.ts'

const nearOf = (...changed: readonly string[]) => {
  const near = testsNear(changed)
  return (file: string) => near.includes(file)
}

test('a change runs the tests of its room, and of the rooms whose files import what has changed', () => {
  const isNear = nearOf('src/billing/charge.ts')
  for (const file of ['src/billing/quote.test.ts', 'src/chat/answers.test.ts']) assert.ok(isNear(file), file)
  for (const file of ['src/tools/safe-fetch.test.ts', 'gateway/settle.test.ts']) assert.ok(!isNear(file), file)
})

test('a changed database function runs the tests of the ledger and of the rooms that call it', () => {
  const isNear = nearOf('migrations/functions/change_limit_window.sql')
  for (const file of ['src/ledger/holds.test.ts', 'src/identity/api-keys.test.ts']) assert.ok(isNear(file), file)
  assert.ok(!isNear('gateway/settle.test.ts'))
})

test('a changed test runs, and a changed page of the documentation runs none', () => {
  assert.deepEqual(testsNear(['test/e2e/money.test.ts', 'docs/proof.md']), ['test/e2e/money.test.ts'])
})
