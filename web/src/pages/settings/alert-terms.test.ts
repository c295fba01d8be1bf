import assert from 'node:assert/strict'
import { test } from 'node:test'
import { alertWords, ruleBody, ruleFormOf, ruleProblem } from './alert-terms.ts'

const alerts = (balance_below: string | null, days_below: number | null) => ({
  balance_below,
  balance_below_atomic: null,
  days_below,
})

test('the active alerts are summarized in one sentence, also when there are none', () => {
  assert.equal(alertWords(alerts(null, 3)), 'We’ll warn you when less than 3 days of balance remain.')
  assert.equal(alertWords(alerts('2.5', null)), 'We’ll warn you when the balance falls below 2.5 USDC.')
  assert.equal(
    alertWords(alerts('2.5', 1)),
    'We’ll warn you when the balance falls below 2.5 USDC or less than 1 day of balance remains.',
  )
  assert.equal(alertWords(alerts(null, null)), 'Low-balance warnings are off.')
})

test('only changed rules are sent, and a threshold must be a number of its unit', () => {
  const rule = {
    object: 'alert_rule',
    kind: 'spend_day',
    unit: 'usdc',
    fires: 'above',
    enabled: false,
    threshold: null,
    rearm: null,
    initial: true,
  } as const
  assert.equal(ruleBody(rule, ruleFormOf(rule)), undefined)
  assert.deepEqual(ruleBody(rule, { enabled: true, threshold: '2.5' }), { enabled: true, threshold: '2.5' })
  assert.deepEqual(ruleBody({ ...rule, enabled: true, threshold: '1' }, { enabled: false, threshold: '1' }), {
    enabled: false,
  })
  assert.equal(ruleProblem(rule, { enabled: false, threshold: '' }), undefined)
  assert.match(ruleProblem(rule, { enabled: true, threshold: '' })!, /amount above 0/)
  assert.match(ruleProblem({ ...rule, unit: 'percent' }, { enabled: true, threshold: '2.5' })!, /whole number/)
  assert.equal(ruleProblem({ ...rule, unit: 'percent' }, { enabled: true, threshold: '80' }), undefined)
})
