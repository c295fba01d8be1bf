import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { toDocument } from './documents.ts'
import { createFullText } from './full-text.ts'
import { renderMarkdown } from './page.ts'
import { type SearchServer, startSearchServer } from './server.ts'

let server: SearchServer
before(async () => {
  server = await startSearchServer({
    host: '127.0.0.1',
    port: 0,
    root: fileURLToPath(new URL('../..', import.meta.url)),
  })
})
after(() => server.close())

test('a question about holds finds the page about holds', async () => {
  const response = await fetch(`${server.url}/search?q=${encodeURIComponent('what is a hold?')}&format=json`)
  const { results } = (await response.json()) as { results: { url: string; title: string; content: string }[] }
  assert.equal(results[0]?.url, 'https://docs.penny.test/docs/operations/hold')
  assert.ok(results[0].title !== '' && results[0].content !== '')
})

test('words that occur on no page find nothing', async () => {
  const response = await fetch(`${server.url}/search?q=xyzzyplugh&format=json`)
  assert.deepEqual(((await response.json()) as { results: unknown[] }).results, [])
})

test('it refuses what SearXNG refuses', async () => {
  assert.equal((await fetch(`${server.url}/search?format=json`)).status, 400)
  assert.equal((await fetch(`${server.url}/search?q=hold`)).status, 403)
  assert.equal((await fetch(`${server.url}/pages/etc/passwd`)).status, 404)
})

test('every page that a search can find is served', async () => {
  const response = await fetch(`${server.url}/search?q=request&format=json`)
  const { results } = (await response.json()) as { results: { url: string }[] }
  assert.ok(results.length > 3)
  for (const { url } of results) {
    const page = await fetch(`${server.url}/pages${new URL(url).pathname}`)
    assert.equal(page.status, 200, url)
    assert.match(await page.text(), /<main><article><h1>/)
  }
})

test('a rare word counts more than a common one, and a heading more than a text', () => {
  const documents = [
    toDocument('docs/one.md', '# Alpha\n\ncommon common common text'),
    toDocument('docs/two.md', '# Beta\n\ncommon rare text'),
    toDocument('docs/three.md', '# Rare\n\ncommon text of some kind'),
  ]
  assert.deepEqual(
    createFullText(documents)('rare common').map(({ document }) => document.path),
    ['/docs/three', '/docs/two', '/docs/one'],
  )
})

test('links between files become links between pages', () => {
  const { markdown } = toDocument(
    'docs/operations/hold.md',
    '[a](charge.md#x) [b](../../README.md) [c](https://x.example/y.md) [d](#top)',
  )
  assert.equal(markdown, '[a](/docs/operations/charge#x) [b](/) [c](https://x.example/y.md) [d](#top)')
})

test('Markdown is rendered as it is written here', () => {
  const html = renderMarkdown(
    '# T\n\nA `<b>` and **c** [d](/e)\nf\n\n- x\n- y\n  z\n\n1. o\n\n| a | b |\n|---|---|\n| 1 | `2` |\n\n> q\n\n```sh\nls <x>\n\n# no heading\n```\nend',
  )
  assert.equal(
    html,
    '<h1>T</h1>\n<p>A <code>&lt;b&gt;</code> and <strong>c</strong> <a href="/e">d</a> f</p>\n<ul><li>x</li><li>y z</li></ul>\n<ol><li>o</li></ol>\n<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td><code>2</code></td></tr></tbody></table>\n<blockquote><p>q</p></blockquote>\n<pre><code>ls &lt;x&gt;\n\n# no heading</code></pre>\n<p>end</p>',
  )
})
