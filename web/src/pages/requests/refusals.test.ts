import assert from 'node:assert/strict'
import { test } from 'node:test'
import { errorCodes, explainCode } from './refusals.ts'

test('every code that a request can have is explained as in the error reference, without its markup', () => {
  const unknown = explainCode('x').remedy
  for (const code of errorCodes) {
    const { cause, remedy } = explainCode(code)
    assert.notEqual(remedy, unknown, code)
    assert.doesNotMatch(cause + remedy, /`/, code)
  }
  assert.equal(explainCode('key_limit_exceeded').to, '/keys')
  assert.equal(
    explainCode('insufficient_balance', true).cause,
    'The request could have cost more than the wallet’s credit.',
  )
})
