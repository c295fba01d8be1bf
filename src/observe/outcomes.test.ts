import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Outcomes } from './outcomes.ts'

test('who was never asked is unused, who fails three times in a row is failing, and one good answer ends that', () => {
  const outcomes = new Outcomes()
  assert.equal(outcomes.standing, 'unused')
  for (const isGood of [false, true, false, false]) outcomes.record(isGood)
  assert.equal(outcomes.standing, 'working')
  outcomes.record(false)
  assert.equal(outcomes.standing, 'failing')
  outcomes.record(true)
  assert.equal(outcomes.standing, 'working')
})
