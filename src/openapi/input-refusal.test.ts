import assert from 'node:assert/strict'
import { test } from 'node:test'
import { z } from 'zod'
import { contracts } from './contracts/all.ts'
import { keyContracts } from './contracts/keys.ts'
import { requestContracts } from './contracts/requests.ts'
import { signInContracts } from './contracts/sign-in.ts'
import { usageContracts } from './contracts/usage.ts'
import { refusalOf } from './input-refusal.ts'
import { text } from './shapes.ts'

function refused(schema: z.ZodType, given: unknown): { code: string; param: string | undefined; message: string } {
  const { code, param, message } = refusalOf(schema.safeParse(given).error!, given)
  return { code, param, message }
}

const key = keyContracts.createKey.body
const rotate = keyContracts.rotateKey.body
const account = signInContracts.updateAccount.body

test('missing and unknown parameters are named, at any depth', () => {
  assert.deepEqual(refused(key, {}), {
    code: 'missing_required_parameter',
    param: 'name',
    message: '`name` is required but was not sent. Add it to the request.',
  })
  const options = signInContracts.createPasskeyOptions.body
  assert.equal(refused(options, {}).message, '`purpose` is required but was not sent. Add it to the request.')
  assert.deepEqual(refused(key, { name: 'a', limits: '1' }), {
    code: 'unsupported_parameter',
    param: 'limits',
    message: '`limits` is not a known parameter. Leave it out.',
  })
  assert.equal(refused(account, { alerts: { days: 3 } }).param, 'alerts.days')
  assert.equal(refused(key, { name: 'a', ['x'.repeat(5_000)]: 1 }).param?.length, 100)
})

test('a wrong type is reported with the received and the expected type', () => {
  const cases: readonly [z.ZodType, unknown, string][] = [
    [key, { name: 7 }, '`name` is 7; it must be a string.'],
    [key, { name: null }, '`name` is null; it must be a string.'],
    [key, { name: ['a'] }, '`name` is an array of 1; it must be a string.'],
    [rotate, { overlap_seconds: '60' }, '`overlap_seconds` is "60"; it must be a number.'],
    [rotate, { overlap_seconds: 1.5 }, '`overlap_seconds` is 1.5; it must be a whole number.'],
    [keyContracts.updateKey.body, { disabled: 'yes' }, '`disabled` is "yes"; it must be true or false.'],
    [account, { alerts: 'off' }, '`alerts` is "off"; it must be an object.'],
  ]
  for (const [schema, given, message] of cases) assert.equal(refused(schema, given).message, message)
})

test('too long, too large, too small and empty values are reported with both numbers', () => {
  assert.deepEqual(refused(key, { name: 'x'.repeat(250) }), {
    code: 'invalid_value',
    param: 'name',
    message: '`name` has 250 characters; the limit is 200. Send fewer.',
  })
  assert.equal(refused(key, { name: '  ' }).message, '`name` is "  "; it must be a text that is not empty.')
  assert.equal(
    refused(rotate, { overlap_seconds: 999_999 }).message,
    '`overlap_seconds` is 999999; it must be at most 604800.',
  )
  assert.equal(refused(rotate, { overlap_seconds: -1 }).message, '`overlap_seconds` is -1; it must be at least 0.')
  const { query } = requestContracts.listRequests
  assert.equal(refused(query, { limit: '500' }).message, '`limit` is "500"; it must be at most 200.')
  assert.equal(
    refused(query, { model: Array.from({ length: 51 }, () => 'm') }).message,
    '`model` has 51 entries; the limit is 50. Send fewer.',
  )
})

test('an invalid choice is reported with all choices, and an invalid format with an example', () => {
  assert.equal(
    refused(usageContracts.getOverview.query, { range: '9y' }).message,
    '`range` is "9y"; it must be one of `24h`, `7d`, `30d`.',
  )
  assert.equal(
    refused(key, { name: 'a', expires_at: 'tomorrow' }).message,
    '`expires_at` is "tomorrow"; it must be an instant such as 2026-11-15T12:00:00Z.',
  )
  assert.equal(
    refused(key, { name: 'a', limit: '1,5' }).message,
    '`limit` is "1,5"; it must be an amount of USDC such as "2.50", with at most six decimals.',
  )
  assert.equal(
    refused(z.object({ name: text(9) }), { name: 'a\0' }).message,
    '`name` is "a\\u0000"; it must not contain a NUL character.',
  )
})

test('a parameter that came once has no number in its place, one of several has', () => {
  const { query } = requestContracts.listRequests
  assert.equal(refused(query, { key: 'x' }).param, 'key')
  assert.equal(refused(query, { key: ['0190dea0-0000-7000-8000-000000000001', 'x'] }).param, 'key[1]')
})

// Sends each member of each route as each kind of wrong value. No response may contain the schema library's own messages.
test('no route returns a message of the schema library', () => {
  const values = [
    undefined,
    null,
    true,
    -1,
    1.5,
    Number.POSITIVE_INFINITY,
    1e12,
    '',
    'x',
    '\0',
    'x'.repeat(10_000),
    [],
    ['x'],
    {},
    { x: 1 },
  ]
  let seen = 0
  for (const { operation, body, query, headers, isChat } of contracts) {
    for (const schema of [isChat ? undefined : body, query, headers]) {
      if (schema === undefined) continue
      const { properties = {} } = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' })
      for (const name of [...Object.keys(properties), 'no_such_member']) {
        for (const value of values) {
          const given = value === undefined ? {} : { [name]: value }
          const { success } = schema.safeParse(given)
          if (success) continue
          const { message } = refused(schema, given)
          assert.match(message, /^`[\w.[\]-]+` /, `${operation}: ${message}`)
          assert.doesNotMatch(
            message,
            /Invalid|expected|received|Too |Unrecognized|something else|of another/,
            operation,
          )
          seen += 1
        }
      }
    }
  }
  assert.ok(seen > 100, `${seen}`)
})
