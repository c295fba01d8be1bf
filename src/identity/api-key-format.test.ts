import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createApiKey, hintOf, isWellFormedApiKey } from './api-key-format.ts'

test('a new key has the service’s prefix, forty characters and a checksum that fits', () => {
  const keys = Array.from({ length: 2_000 }, createApiKey)
  assert.ok(keys.every((key) => /^penny_[0-9A-Za-z]{40}$/.test(key) && isWellFormedApiKey(key)))
  assert.equal(new Set(keys).size, keys.length)
})

test('a key with any one character changed is known to be wrong without a look-up', () => {
  const key = createApiKey()
  for (let index = 0; index < key.length; index += 1) {
    const changed = key.slice(0, index) + (key[index] === 'x' ? 'y' : 'x') + key.slice(index + 1)
    assert.equal(isWellFormedApiKey(changed), false, changed)
  }
})

test('after its first showing only the last four characters of a key are told', () => {
  const key = createApiKey()
  assert.equal(hintOf(key), `penny_…${key.slice(-4)}`)
})
