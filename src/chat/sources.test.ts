import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { Sources } from './sources.ts'

const from = (content: string, role: 'user' | 'system' = 'user') => new Sources([{ role, content }])

test('a URL that the customer wrote may be read, whatever text surrounds it', () => {
  for (const written of [
    'Read https://example.com/a?b=c.',
    'Read (https://example.com/a?b=c), please',
    '[this](https://example.com/a?b=c)—and tell me',
    '<https://example.com/a?b=c>',
    'See "https://example.com/a?b=c"!',
    'See HTTPS://EXAMPLE.com/a?b=c#part',
    'Have you seen example.com/a?b=c?',
  ]) {
    assert.ok(from(written).allows('https://example.com/a?b=c'), written)
    assert.ok(from(written, 'system').allows('http://example.com/a?b=c#other'), written)
  }
  assert.ok(from('https://en.wikipedia.org/wiki/Penny_(coin)').allows('https://en.wikipedia.org/wiki/Penny_(coin)'))
})

test('no other address may be read: not another page, another host, or the same with something added', () => {
  const sources = from('Read https://example.com/a?b=c.')
  for (const url of [
    'https://example.com/',
    'https://example.com/a',
    'https://example.com/a?b=c&d=secret',
    'https://example.com/a?b=c/..',
    'https://example.com.evil.test/a?b=c',
    'https://evil.test/https://example.com/a?b=c',
    'https://secret@example.com/a?b=c',
    'https://example.com:8443/a?b=c',
    'javascript:alert(1)',
    'https://',
    '',
  ]) {
    assert.equal(sources.allows(url), false, url)
  }
})

test('URLs written by the model, by a client’s tool or in a page may not be read', () => {
  const sources = new Sources([
    { role: 'assistant', content: 'https://example.com/said', toolCalls: [] },
    { role: 'tool', toolCallId: 'a', content: 'https://example.com/told' },
  ])
  sources.add('https://example.com/found', 'See https://example.com/title')
  assert.deepEqual(
    ['said', 'told', 'title', 'found'].map((path) => sources.allows(`https://example.com/${path}`)),
    [false, false, false, true],
  )
})

test('citations are the links and addresses of pages that were found, at their place in the answer', () => {
  const sources = new Sources([])
  sources.add('https://example.com/a', 'A')
  sources.add('https://example.com/b', undefined)
  const text = 'As 😀 [one](https://example.com/a) says, and https://example.com/b, not [x](https://example.com/c).'
  const cited = sources.citationsIn(text, 100)
  assert.deepEqual(
    cited.map(({ url, title, startIndex, endIndex }) => [url, title, text.slice(startIndex - 100, endIndex - 100)]),
    [
      ['https://example.com/a', 'A', '[one](https://example.com/a)'],
      ['https://example.com/b', '', 'https://example.com/b'],
    ],
  )
})

test('any text of a megabyte is scanned in one pass', () => {
  const labels = `${'a-'.repeat(9)}a.`.repeat(9)
  for (const piece of [
    'a-',
    'a.',
    labels,
    'example.com,',
    'https://',
    'https://a.test/(',
    ')',
    '](https://a.test/',
    '.'.repeat(10),
    'é',
  ]) {
    const sources = from(piece.repeat(1_000_000 / piece.length))
    sources.add('https://b.test/', 'B')
    assert.ok(sources.citationsIn(piece.repeat(1_000_000 / piece.length), 0).length <= 100)
  }
})

test('the first 100,000 characters of a message and the first 1,000 addresses of a request are looked through', () => {
  const urls = Array.from({ length: 1_500 }, (_, number) => `https://example.com/${number}`)
  const sources = new Sources(urls.map((content) => ({ role: 'user', content })))
  assert.deepEqual(
    urls.map((url) => sources.allows(url)),
    urls.map((_, number) => number < 1_000),
  )
  const long = from(`https://example.com/near ${'word '.repeat(19_992)} https://example.com/cut-in-half/far`)
  assert.deepEqual(
    ['near', 'cut-in-half/far', 'cut', 'cut-in-half'].map((path) => long.allows(`https://example.com/${path}`)),
    [true, false, false, false],
  )
})

test('any URL on its own in a message may be read, and is found where it is cited', () => {
  fc.assert(
    fc.property(fc.webUrl({ withQueryParameters: true }), (url) => {
      fc.pre(!/['`^|\\\]}<>"]/.test(url) && !/[.,;:!?*_~()]$/.test(url) && !/[()]/.test(url))
      assert.ok(from(`Read ${url} now`).allows(url))
      const sources = new Sources([])
      sources.add(url, 'Title')
      const [citation] = sources.citationsIn(`See [here](${url}).`, 0)
      assert.deepEqual([citation?.startIndex, citation?.endIndex], [4, 4 + '[here]()'.length + url.length])
    }),
  )
})
