import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parse, zero } from '../../money/usdc.ts'
import { alertsOf } from './overview.ts'

const perDay = parse('2')

test('a low balance is told in days, one of them in the singular', () => {
  const messageOf = (available: string, daysLeft: number) =>
    alertsOf({ deposited: parse('10'), available: parse(available) }, { perDay, daysLeft })[0]?.message
  assert.equal(messageOf('2', 1), '2 USDC is left; at 2 USDC a day that is 1 day.')
  assert.equal(messageOf('3', 1.5), '3 USDC is left; at 2 USDC a day that is 1.5 days.')
  assert.equal(messageOf('8', 4), undefined)
})

test('an empty balance is an error where there was money, and nothing where there was none', () => {
  const codesOf = (deposited: string) =>
    alertsOf({ deposited: parse(deposited), available: zero }, { perDay: zero, daysLeft: null }).map(({ code }) => code)
  assert.deepEqual(codesOf('10'), ['balance_empty'])
  assert.deepEqual(codesOf('0'), [])
})
