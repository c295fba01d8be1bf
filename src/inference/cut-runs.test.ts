import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { cutRuns } from './cut-runs.ts'

test('natural text is not cut, and long runs are cut between characters', () => {
  const prose = 'Ledgers are kept by the day. '.repeat(2_000)
  assert.deepEqual(cutRuns(prose), [prose])
  const units = fc.constantFrom('a', 'é', '漢', '😀', ' ', '\u3000', '\n')
  const runs = fc.array(fc.tuple(units, fc.integer({ min: 1, max: 900 })), { maxLength: 6 })
  fc.assert(
    fc.property(runs, (parts) => {
      const text = parts.map(([unit, count]) => unit.repeat(count)).join('')
      const pieces = cutRuns(text)
      assert.equal(pieces.join(''), text)
      for (const piece of pieces) {
        assert.ok(piece.isWellFormed())
        for (const run of piece.match(/\S+|\s+/g) ?? []) assert.ok(Buffer.byteLength(run) <= 516)
      }
    }),
  )
})
