import assert from 'node:assert/strict'
import { test } from 'node:test'
import { withoutKeys } from './errors.ts'

test('URLs in a message keep only their scheme and host', () => {
  for (const [text, told] of [
    ['GET https://user:secret@host.example/v1/key?x=1 failed', 'GET https://host.example/… failed'],
    ['wss://node.example/0123abc', 'wss://node.example/…'],
    ['"https://a.example/k" https://b.example#k', '"https://a.example/…" https://b.example/…'],
    ['postgres://u:p@db:5432/penny', 'postgres://db:5432/…'],
    ['https://plain.example and ://none@here/x', 'https://plain.example and ://none@here/x'],
  ] as const)
    assert.equal(withoutKeys(text), told)
})

// By the square of its length, each of these would take hours.
test('long messages are cleaned as fast as they are read', () => {
  const length = 4_000_000
  const word = 'a'.repeat(length)
  assert.equal(withoutKeys(word), word)
  assert.equal(withoutKeys(`x://${word}`), `x://${word}`)
  assert.equal(withoutKeys(`x://${word}@host/key`), 'x://host/…')
  assert.equal(withoutKeys(`${'a:'.repeat(length / 2)}`), 'a:'.repeat(length / 2))
  assert.equal(withoutKeys('a://b '.repeat(length / 6)).length, Math.floor(length / 6) * 6)
})
