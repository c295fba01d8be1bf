import assert from 'node:assert/strict'
import { test } from 'node:test'
import { alertFormOf, alertsBody, alertWords, checkAlerts, ruleBody, ruleFormOf, ruleProblem } from './alert-terms.ts'

const alerts = (balance_below: string | null, days_below: number | null) => ({
  balance_below,
  balance_below_atomic: null,
  days_below,
})

test('what is warned of is said in one sentence, also when it is nothing', () => {
  assert.equal(alertWords(alerts(null, 3)), 'We’ll warn you when less than 3 days of balance remain.')
  assert.equal(alertWords(alerts('2.5', null)), 'We’ll warn you when the balance falls below 2.5 USDC.')
  assert.equal(
    alertWords(alerts('2.5', 1)),
    'We’ll warn you when the balance falls below 2.5 USDC or less than 1 day of balance remains.',
  )
  assert.equal(alertWords(alerts(null, null)), 'Low-balance warnings are off.')
})

test('an emptied field turns its warning off, and a form that was not touched changes nothing', () => {
  assert.deepEqual(alertsBody({ balance: '', days: '' }), { balance_below: null, days_below: null })
  assert.deepEqual(alertsBody(alertFormOf(alerts('2.5', 7))), { balance_below: '2.5', days_below: 7 })
})

test('what the service would refuse is told beside its field', () => {
  assert.deepEqual(checkAlerts({ balance: '2.50', days: '365' }), {})
  assert.deepEqual(checkAlerts({ balance: '', days: '' }), {})
  assert.deepEqual(Object.keys(checkAlerts({ balance: '0', days: '0' })), ['balance', 'days'])
  assert.deepEqual(Object.keys(checkAlerts({ balance: '1.1234567', days: '366' })), ['balance', 'days'])
  assert.deepEqual(Object.keys(checkAlerts({ balance: '-1', days: '1.5' })), ['balance', 'days'])
})

test('of the rules only what was changed is sent, and a threshold must be a number of its unit', () => {
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
