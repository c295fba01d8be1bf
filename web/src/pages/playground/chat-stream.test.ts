import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addToolCalls, type Chunk, readChunk, readChunks, readWhole, StreamCutError } from './chat-stream.ts'

const nothing = { text: '', reasoning: '', toolCalls: [], finishReason: undefined }

test('a refusal of the model is its answer, streamed or whole', () => {
  const words = { content: null, refusal: 'I cannot help with that.' }
  const said = { ...nothing, text: 'I cannot help with that.' }
  assert.deepEqual(readWhole({ choices: [{ message: words }] }), said)
  assert.deepEqual(readChunk({ choices: [{ delta: words }] }), said)
})

test('an answer without words is empty, and a chunk without a choice adds nothing', () => {
  assert.deepEqual(readWhole({ choices: [{ message: { content: null } }] }), nothing)
  assert.deepEqual(readChunk({ choices: [] }), nothing)
})

test('an error that comes after the status says what it is', () => {
  const error = { message: 'The model failed.', code: 'upstream_error' }
  for (const read of [readWhole, readChunk])
    assert.throws(() => read({ error }), { message: 'The model failed.', code: 'upstream_error' })
})

test('tool calls are put together from their pieces, parallel ones by index', () => {
  const pieces = [
    [{ index: 0, id: 'a', function: { name: 'f', arguments: '' } }],
    [{ index: 0, function: { arguments: '{"x"' } }],
    [{ index: 1, id: 'b', function: { name: 'g', arguments: '{}' } }],
    [{ index: 0, function: { arguments: ':1}' } }],
  ]
  assert.deepEqual(
    pieces.reduce<ReturnType<typeof addToolCalls>>((calls, deltas) => addToolCalls(calls, deltas), []),
    [
      { id: 'a', name: 'f', arguments: '{"x":1}', result: '' },
      { id: 'b', name: 'g', arguments: '{}', result: '' },
    ],
  )
})

test('a stream is complete with [DONE] alone: one that ends without it was cut', async () => {
  const line = 'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'
  const read: Chunk[] = []
  const readAll = async (text: string) => {
    for await (const chunk of readChunks(new Response(text).body!)) read.push(chunk)
  }
  await readAll(`: keep-alive\n\n${line}data: [DONE]\n\n`)
  assert.equal(read.length, 1)
  await assert.rejects(readAll(line), StreamCutError)
  assert.equal(read.length, 2, 'what arrived is kept')
})
