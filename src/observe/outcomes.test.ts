import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Outcomes } from './outcomes.ts'

test('an upstream without calls is unused, after three failures in a row it is failing, and one success ends that', () => {
  const outcomes = new Outcomes()
  assert.equal(outcomes.standing, 'unused')
  for (const isGood of [false, true, false, false]) outcomes.record(isGood)
  assert.equal(outcomes.standing, 'working')
  outcomes.record(false)
  assert.equal(outcomes.standing, 'failing')
  outcomes.record(true)
  assert.equal(outcomes.standing, 'working')
})
