import assert from 'node:assert/strict'
import { test } from 'node:test'
import { readChunk, readWhole } from './chat-stream.ts'

test('a refusal of the model is its answer, streamed or whole', () => {
  const words = { content: null, refusal: 'I cannot help with that.' }
  const said = { text: 'I cannot help with that.', reasoning: '' }
  assert.deepEqual(readWhole({ choices: [{ message: words }] }), said)
  assert.deepEqual(readChunk({ choices: [{ delta: words }] }), said)
})

test('an answer without words is empty, and a chunk without a choice adds nothing', () => {
  const nothing = { text: '', reasoning: '' }
  assert.deepEqual(readWhole({ choices: [{ message: { content: null } }] }), nothing)
  assert.deepEqual(readChunk({ choices: [] }), nothing)
})

test('an error that comes after the status says what it is', () => {
  const error = { message: 'The model failed.', code: 'upstream_error' }
  for (const read of [readWhole, readChunk]) assert.throws(() => read({ error }), /^Error: The model failed\.$/)
})
