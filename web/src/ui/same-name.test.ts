import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isSameName } from './same-name.ts'

test('a name is typed as it is read: spaces that are shown as one, and signs that are not shown, are not typed', () => {
  assert.ok(isSameName('CI key', 'CI   key'))
  assert.ok(isSameName(' CI key ', '\u202ECI\u00A0key\u200B'))
  assert.ok(isSameName('caf\u00E9', 'cafe\u0301'))
  assert.ok(!isSameName('ci key', 'CI key'))
  assert.ok(!isSameName('CIkey', 'CI key'))
  assert.ok(!isSameName('', 'CI key'))
})
