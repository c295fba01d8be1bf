import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { countTokens, splitTokens, wordTokens } from './tokens.ts'

test('splitting a text keeps every character and gives one piece per counted token', () => {
  const text = fc.oneof(fc.string(), fc.string({ unit: 'grapheme' }), fc.string({ unit: 'binary' }))
  fc.assert(
    fc.property(text, (any) => {
      const pieces = splitTokens(any)
      assert.equal(pieces.join(''), any.toWellFormed())
      assert.equal(pieces.length, countTokens(any))
    }),
  )
})

test('text that spells a special token is counted as text', () => {
  assert.ok(countTokens('<|endoftext|>') > 1)
  assert.equal(splitTokens('<|im_start|>').join(''), '<|im_start|>')
})

test('filler has exactly the asked number of tokens, also when counted as one text', () => {
  for (const count of [0, 1, 2, 100, 4_321]) {
    const pieces = wordTokens(count)
    assert.equal(pieces.length, count)
    assert.equal(countTokens(pieces.join('')), count)
    assert.deepEqual(splitTokens(pieces.join('')), pieces)
  }
})

// Unsplit, this takes the tokenizer minutes; split, milliseconds. The runner's time limit is the assertion.
test('a megabyte without a space does not stop the model', { timeout: 60_000 }, () => {
  assert.ok(countTokens('a'.repeat(1_000_000)) > 0)
  assert.ok(countTokens(' '.repeat(1_000_000)) > 0)
})
