import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { findWrittenUrls } from './written-urls.ts'

const found = (text: string) => [...findWrittenUrls(text)].map(({ url }) => url)

test('addresses are found as people write them, without the punctuation of the sentence', () => {
  for (const [text, urls] of [
    ['Read https://example.com/a?b=c#d, please.', ['https://example.com/a?b=c#d']],
    ['Read example.com/a and www.example.org!', ['example.com/a', 'www.example.org']],
    ['(see HTTPS://Example.com/a)', ['HTTPS://Example.com/a']],
    ['https://en.wikipedia.org/wiki/Penny_(coin)', ['https://en.wikipedia.org/wiki/Penny_(coin)']],
    [
      '[a](https://example.com/a) <https://example.com/b> "https://example.com/c"',
      ['https://example.com/a', 'https://example.com/b', 'https://example.com/c'],
    ],
    ['http://localhost:8402/x', ['http://localhost:8402/x']],
    ['硬币：https://例え.jp/頁 と', ['https://例え.jp/頁']],
    ['It costs 1.50 or so. Then e.g. nothing', []],
    ['no address here', []],
    ['', []],
  ] as const)
    assert.deepEqual(found(text), urls, text)
})

test('each address is where it is said to be, and they do not overlap', () => {
  const piece = fc.constantFrom(
    'a',
    '.',
    '://',
    'http',
    'https',
    'example.com',
    '/',
    ' ',
    '(',
    ')',
    '-',
    '硬',
    '🪙',
    '5',
  )
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 40 }), (pieces) => {
      const text = pieces.join('')
      let end = 0
      for (const { index, url } of findWrittenUrls(text)) {
        assert.ok(index >= end)
        assert.equal(text.slice(index, index + url.length), url)
        end = index + url.length
      }
    }),
  )
})
