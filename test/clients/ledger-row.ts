import assert from 'node:assert/strict'
import { costOfLines, type RequestBody } from '../support/service.ts'
import type { Exchange } from './tap.ts'

/** The row of a request whose money was held adds up to the atomic unit, and says what the answer's headers said. */
export function assertRowAddsUp(row: RequestBody, { headers }: Exchange): void {
  const [quote, held, charged, refunded] = [
    BigInt(row.quote_atomic),
    BigInt(row.held_atomic),
    BigInt(row.charged_atomic),
    BigInt(row.refunded_atomic),
  ]
  assert.equal(quote, BigInt(row.from_credit_atomic) + BigInt(row.authorized_atomic), 'quote')
  assert.equal(refunded, held - charged, 'refunded')
  assert.equal(charged, costOfLines(row), 'charged')
  assert.equal(charged, BigInt(row.cost.inference_atomic) + BigInt(row.cost.search_atomic), 'cost')
  assert.ok(charged <= quote, 'without search the quote is the most it can cost')
  assert.equal(headers['x-router-held-usdc'], row.held_atomic)
  if ('x-router-charged-usdc' in headers) assert.equal(headers['x-router-charged-usdc'], row.charged_atomic)
}
