import assert from 'node:assert/strict'
import { test } from 'node:test'
import { toCsv } from './csv.ts'

test('a cell never becomes a formula, and quotes and commas survive', () => {
  assert.equal(toCsv([['=1+1', '+x', '-5', '@a', 'a,"b"', 'plain']]), `'=1+1,'+x,-5,'@a,"a,""b""",plain\r\n`)
})
