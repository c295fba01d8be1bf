import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createRequestId, digits, formatRequestId, parseRequestId, partitionOf } from './request-id.ts'

test('an id is a UUIDv7 in time’s order that names its partition and reads back', () => {
  const ids = [0, 7, 4_095].map((partition, index) => createRequestId(partition, 1_794_718_390_000 + index))
  assert.deepEqual(ids.map(partitionOf), [0, 7, 4_095])
  assert.deepEqual(ids.toSorted(), ids)
  for (const id of ids) {
    assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    assert.equal(parseRequestId(formatRequestId(id)), id)
    assert.equal(formatRequestId(id), `req_${digits(id)}`)
  }
})

test('an id in another format is not parsed', () => {
  for (const text of [
    '',
    'req_',
    `req_${'0'.repeat(32)}`,
    `chatcmpl-${'0'.repeat(32)}`,
    `req_${'0'.repeat(12)}7000${'8'.repeat(16)}'`,
  ]) {
    assert.equal(parseRequestId(text), undefined)
  }
})
