import assert from 'node:assert/strict'
import { test } from 'node:test'
import { rowCodes } from '../../../../src/site/pages/errors.ts'
import { explainCode } from './refusals.ts'

test('log-only events and refusal reasons of an account have texts', () => {
  const unknown = explainCode('x').remedy
  for (const code of [...rowCodes, 'account_suspended']) assert.notEqual(explainCode(code).remedy, unknown, code)
})
