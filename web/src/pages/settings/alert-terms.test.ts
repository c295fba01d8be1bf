import assert from 'node:assert/strict'
import { test } from 'node:test'
import { alertFormOf, alertsBody, alertWords, checkAlerts } from './alert-terms.ts'

const alerts = (balance_below: string | null, days_below: number | null) => ({
  balance_below,
  balance_below_atomic: null,
  days_below,
})

test('what is warned of is said in one sentence, also when it is nothing', () => {
  assert.equal(alertWords(alerts(null, 3)), 'We warn below 3 days left.')
  assert.equal(alertWords(alerts('2.5', null)), 'We warn below 2.5 USDC.')
  assert.equal(alertWords(alerts('2.5', 1)), 'We warn below 2.5 USDC and below 1 day left.')
  assert.equal(alertWords(alerts(null, null)), 'We do not warn of a low balance.')
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
