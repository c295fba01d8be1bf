import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createApiKey, hintOf, whyMalformed } from './api-key-format.ts'

test('a new key has the service’s prefix, forty characters and a checksum that fits', () => {
  const keys = Array.from({ length: 2_000 }, createApiKey)
  assert.ok(keys.every((key) => /^penny_[0-9A-Za-z]{40}$/.test(key) && whyMalformed(key) === undefined))
  assert.equal(new Set(keys).size, keys.length)
})

test('a key with any one character changed is known to be wrong without a look-up', () => {
  const key = createApiKey()
  for (let index = 0; index < key.length; index += 1) {
    const changed = key.slice(0, index) + (key[index] === 'x' ? 'y' : 'x') + key.slice(index + 1)
    const expected = index < 'penny_'.length ? /its keys begin with "penny_"/ : /has a typo/
    assert.match(whyMalformed(changed)!, expected, changed)
  }
})

test('a malformed key is explained without repeating any of it', () => {
  const key = createApiKey()
  assert.equal(whyMalformed(key.slice(0, 30)), 'This API key has 30 characters; a key has 46. Copy the whole key.')
  assert.match(whyMalformed(`${key} `)!, /has 47 characters/)
  assert.doesNotMatch(whyMalformed('sk-proj-0123456789')!, /sk-|0123/)
  assert.doesNotMatch(whyMalformed(key.slice(0, 30))!, new RegExp(key.slice(6, 12)))
})

test('after its creation only the last four characters of a key are shown', () => {
  const key = createApiKey()
  assert.equal(hintOf(key), `penny_…${key.slice(-4)}`)
})
