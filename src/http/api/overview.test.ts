import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Alerts, alertsDefault } from '../../ledger/alerts.ts'
import { parse, zero } from '../../money/usdc.ts'
import { alertsOf, keyAlertsOf } from './overview.ts'

const perDay = parse('2')

function messageOf(available: string, daysLeft: number | null, alerts: Alerts = alertsDefault): string | undefined {
  return alertsOf({ deposited: parse('10'), available: parse(available) }, { perDay, daysLeft }, alerts)[0]?.message
}

test('a low balance is told in days, one of them in the singular, with what it is measured by', () => {
  assert.equal(messageOf('2', 1), '2 USDC left, enough for 1 day at 2 USDC per day. Your warning is set to 3 days.')
  assert.equal(
    messageOf('3', 1.5),
    '3 USDC left, enough for 1.5 days at 2 USDC per day. Your warning is set to 3 days.',
  )
  assert.equal(messageOf('8', 4), undefined)
})

test('an account warns below the amount and the days that its holder set, and of nothing that they turned off', () => {
  const amount = { balanceBelow: parse('5'), daysBelow: undefined }
  assert.equal(messageOf('4.2', null, amount), '4.2 USDC left. Your warning is set to 5 USDC.')
  assert.equal(messageOf('4.2', 2.1, amount), '4.2 USDC left. Your warning is set to 5 USDC.')
  assert.equal(messageOf('5', 0.5, amount), undefined, 'below is less than')
  assert.equal(
    messageOf('1', 0.5, { balanceBelow: parse('5'), daysBelow: 1 }),
    '1 USDC left, enough for 0.5 days at 2 USDC per day. Your warning is set to 5 USDC and 1 day.',
  )
  assert.equal(messageOf('0.1', 0.1, { balanceBelow: undefined, daysBelow: undefined }), undefined)
})

test('an empty balance is an error where there was money, whatever is turned off, and nothing where there was none', () => {
  const codesOf = (deposited: string) =>
    alertsOf(
      { deposited: parse(deposited), available: zero },
      { perDay: zero, daysLeft: null },
      { balanceBelow: undefined, daysBelow: undefined },
    ).map(({ code }) => code)
  assert.deepEqual(codesOf('10'), ['balance_empty'])
  assert.deepEqual(codesOf('0'), [])
})

test('a key that spent 80 % of its limit is told, the fullest first, and one that cannot spend any more is not', () => {
  const key = (name: string, spent: string, more: object = {}) => ({
    ...{ id: name, name, limit: parse('2'), spent: parse(spent), revokedAt: undefined, expired: false },
    ...more,
  })
  const alerts = keyAlertsOf([
    key('calm', '1.599999'),
    key('near', '1.6'),
    key('full', '2'),
    key('free', '9', { limit: undefined }),
    key('gone', '2', { revokedAt: new Date() }),
    key('over', '2', { expired: true }),
  ])
  assert.deepEqual(
    alerts.map(({ level, message, href }) => [level, message, href]),
    [
      ['error', 'Key "full" has spent 2 of its 2 USDC limit (100 %).', '/keys/full'],
      ['warning', 'Key "near" has spent 1.6 of its 2 USDC limit (80 %).', '/keys/near'],
    ],
  )
  const many = keyAlertsOf(Array.from({ length: 9 }, (_, index) => key(`key ${index}`, '1.9')))
  assert.deepEqual([many.length, many.at(-1)!.message], [6, '4 more keys have spent 80 % of the limit or more.'])
})
