import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type DashboardClient, type Json, signInNew } from '../../test/support/dashboard-client.ts'
import { serviceSuite } from '../../test/support/suites.ts'
import { alertContracts } from '../openapi/contracts/alerts.ts'

let client: DashboardClient
let stranger: DashboardClient
const suite = serviceSuite({ TRUST_PROXY: '1' }, async (service) => {
  client = await signInNew(service, '10')
  stranger = await signInNew(service, '1')
})

test('the holder says below what to be warned, and the overview then gives the numbers', async () => {
  const holder = await signInNew(suite.service, '4.2')
  const alertsOf = async () => (await holder.get('/api/session')).account.alerts
  assert.deepEqual(await alertsOf(), { balance_below_atomic: null, balance_below: null, days_below: 3 })
  assert.deepEqual((await holder.get('/api/overview')).alerts, [])

  const { alerts } = await holder.patch('/api/account', { alerts: { balance_below: '5' } })
  assert.deepEqual(alerts, { balance_below_atomic: '5000000', balance_below: '5', days_below: 3 })
  assert.deepEqual((await holder.get('/api/overview')).alerts, [
    {
      level: 'warning',
      code: 'balance_below',
      message: '4.2 USDC left. Your warning is set to 5 USDC.',
      href: '/funds',
    },
  ])
  await holder.patch('/api/account', { alerts: { days_below: null } })
  assert.deepEqual(await alertsOf(), { balance_below_atomic: '5000000', balance_below: '5', days_below: null })
  await holder.patch('/api/account', { alerts: { balance_below: null, days_below: 30 } })
  assert.deepEqual(await alertsOf(), { balance_below_atomic: null, balance_below: null, days_below: 30 })
  assert.deepEqual((await holder.get('/api/overview')).alerts, [])
  assert.equal((await stranger.get('/api/session')).account.alerts.days_below, 3, 'everybody has their own')
})

test('alert rules are set by kind, in its unit, and their state is visible immediately', async () => {
  const holder = await signInNew(suite.service, '4.2')
  const { data: rules } = await holder.get('/api/alerts/rules')
  alertContracts.listAlertRules.answer.parse(await holder.get('/api/alerts/rules'))
  const initial = rules.filter(({ enabled }: Json) => enabled).map(({ kind, threshold }: Json) => [kind, threshold])
  assert.deepEqual(initial, [
    ['balance_empty', '1'],
    ['days_left', '3'],
    ['key_limit', '80'],
    ['settlement_stuck', '120'],
    ['withdrawal_stuck', '60'],
    ['webhook_disabled', '1'],
  ])
  const put = (kind: string, body: Json) => holder.send('PUT', `/api/alerts/rules/${kind}`, body)
  for (const [kind, body] of [
    ['balance_below', { enabled: true }],
    ['balance_below', { enabled: true, threshold: '0' }],
    ['balance_below', { enabled: true, threshold: '5', rearm: '4' }],
    ['spend_day', { enabled: true, threshold: '5', rearm: '6' }],
    ['key_limit', { enabled: true, threshold: '101' }],
    ['key_limit', { enabled: true, threshold: '1.5' }],
    ['days_left', { enabled: true, threshold: '366' }],
    ['balance_below', { enabled: true, threshold: 'ten' }],
    ['balance_below', { enabled: true, threshold: '5', loud: true }],
  ] as const)
    assert.equal((await put(kind, body)).status, 400, JSON.stringify([kind, body]))
  assert.ok([400, 404].includes((await put('weather', { enabled: false })).status))
  const rule = await (await put('balance_below', { enabled: true, threshold: '5' })).json()
  assert.partialDeepStrictEqual(rule, { enabled: true, threshold: '5', rearm: '5.500001', initial: false })
  const { data: alerts } = await holder.get('/api/alerts')
  assert.partialDeepStrictEqual(alerts, [{ kind: 'balance_below', subject: null, href: '/funds', resolved_at: null }])
  assert.deepEqual((await stranger.get('/api/alerts')).data, [])
  await put('balance_below', { enabled: false })
  const { data: resolved } = await holder.get('/api/alerts')
  assert.notEqual(resolved[0].resolved_at, null)
  // This service has no SMTP_URL.
  assert.equal((await holder.get('/api/alerts/email')).available, false)
  assert.equal((await holder.send('PUT', '/api/alerts/email', { address: 'ada@example.com' })).status, 400)
  assert.equal((await holder.send('POST', '/api/alerts/email/verify', { token: 'x' })).status, 404)
})

test('a warning that cannot be is refused with what to write, and changes nothing', async () => {
  const refused = [
    [{ balance_below: '0' }, 'alerts.balance_below', /above 0, or null/],
    [{ balance_below: '-1' }, 'alerts.balance_below', /an amount of USDC such as "2.50"/],
    [{ balance_below: 5 }, 'alerts.balance_below', /is 5; it must be a string/],
    [{ days_below: 0 }, 'alerts.days_below', /a whole number of days from 1 to 365, or null/],
    [{ days_below: 366 }, 'alerts.days_below', /a whole number of days from 1 to 365, or null/],
    [{ days_below: 1.5 }, 'alerts.days_below', /a whole number of days from 1 to 365, or null/],
  ] as const
  for (const [alerts, param, words] of refused) {
    const response = await client.send('PATCH', '/api/account', { name: 'not this', alerts })
    const { error } = (await response.json()) as Json
    assert.deepEqual([response.status, error.code, error.param], [400, 'invalid_value', param])
    assert.match(error.message, words)
  }
  const { account } = await client.get('/api/session')
  assert.notEqual(account.name, 'not this')
  assert.equal(account.alerts.days_below, 3)
})
