import assert from 'node:assert/strict'
import { test } from 'node:test'
import { printRows, type Row, type TableOptions, widthOf } from './table.ts'

function print(rows: readonly Row[], width: number | undefined, options?: TableOptions): readonly string[] {
  let text = ''
  printRows({ json: false, color: false, width, write: (piece) => (text += piece) }, rows, options)
  return text.trimEnd().split('\n')
}

const rows = [
  {
    id: '0b7bfc1e-2c6f-4f4e-9d6b-1f2a3b4c5d6e',
    name: '東京の鍵',
    limit: '2',
    spent: '0.003875',
    created_at: '2026-11-16T12:50:21.123Z',
  },
  {
    id: '1b7bfc1e-2c6f-4f4e-9d6b-1f2a3b4c5d6e',
    name: 'nightly',
    limit: null,
    spent: '0.05',
    created_at: '2026-11-16T12:51:00.000Z',
  },
]

test('a terminal gets short ids and times, and numbers with equal decimals at the right', () => {
  assert.deepEqual(print(rows, 80), [
    'id        name      limit     spent  created at',
    '0b7bfc1e  東京の鍵      2  0.003875  2026-11-16 12:50',
    '1b7bfc1e  nightly       –  0.050000  2026-11-16 12:51',
  ])
})

test('a pipe gets every value in full', () => {
  assert.match(print(rows, undefined)[1]!, /^0b7bfc1e-2c6f-4f4e-9d6b-1f2a3b4c5d6e .* 2026-11-16T12:50:21\.123Z$/)
})

test('control characters in names do nothing to the terminal', () => {
  assert.deepEqual(print([{ name: '\u001b[2J\u009b31m' }], undefined)[1], '\uFFFD[2J\uFFFD31m')
})

test('no line is wider than the terminal: spare columns go first, then long texts are cut', () => {
  const long = rows.map((row) => ({
    ...row,
    note: 'a note that is far too long for any terminal that people use, and longer',
  }))
  for (const width of [50, 60, 80]) {
    const lines = print(long, width, { omit: ['created_at'] })
    assert.ok(
      lines.every((line) => widthOf(line) <= width),
      lines.join('\n'),
    )
    assert.doesNotMatch(lines[0]!, /created/)
    assert.match(lines[1]!, /…/)
  }
})

test('wide characters and emoji count as two columns', () => {
  assert.deepEqual(['abc', '鍵', 'é', '👍', 'ｆ', '한'].map(widthOf), [3, 2, 1, 2, 2, 2])
})
