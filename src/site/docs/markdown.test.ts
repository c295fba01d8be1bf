import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { parseFragment } from 'parse5'
import { renderMarkdown } from './markdown.ts'

const html = (markdown: string, resolve: (target: string) => string | undefined = (target) => target) =>
  renderMarkdown(markdown, resolve).html

test('Markdown becomes HTML, with highlighted code and tables that scroll', () => {
  assert.equal(
    html('# One `two`\n\nthree *four* **five**'),
    '<h1 id="one-two">One <code>two</code></h1>\n<p>three <em>four</em> <strong>five</strong></p>',
  )
  assert.match(
    html('```js not-run\nif (a < b) return\n```'),
    /^<pre tabindex="0"><code class="language-js"><span class="hljs-keyword">if<\/span> \(a &lt; b\)/,
  )
  assert.match(
    html('| a | b |\n|---|---|\n| `x\\|y` | 1 \\| 2 |'),
    /^<div class="table" tabindex="0"><table>.*<code>x\|y<\/code>.*1 \| 2.*<\/table><\/div>$/s,
  )
})

test('adjacent blocks in different languages are tabs; a block and its output are not', () => {
  const tabs = html('```sh\na\n```\n\n```python\nb\n```\n')
  assert.match(tabs, /^<div class="tabs">\n<figure><figcaption>curl<.*<figcaption>Python<.*<\/figure>\n<\/div>$/s)
  assert.doesNotMatch(html('```sh\na\n```\n\n```text output\nb\n```\n'), /tabs/)
  assert.doesNotMatch(html('```sh\na\n```\n\n```sh\nb\n```\n'), /tabs/)
  assert.doesNotMatch(html('```sh\na\n```\n\nwords\n\n```python\nb\n```\n'), /tabs/)
})

test('headings have ids of their own, and keep one that is given', () => {
  const { headings } = renderMarkdown('## Same\n## Same\n## `in_flight_cap` · 429 {#in_flight_cap}', (target) => target)
  assert.deepEqual(
    headings.map(({ id }) => id),
    ['same', 'same-2', 'in_flight_cap'],
  )
})

test('a link to a page that is not on the site, or to a script, is shown as its text', () => {
  assert.equal(
    html('[a](../b.ts) [c](d.md)', (target) => (target === 'd.md' ? '/docs/d' : undefined)),
    '<p>a <a href="/docs/d">c</a></p>',
  )
  assert.equal(html('[a](javascript:alert(1)) [b](//evil.example)'), '<p>a b</p>')
})

test('no text becomes a tag that is not ours', () => {
  const known = new Set(
    'h1 h2 h3 h4 h5 h6 p ul ol li blockquote pre code div table thead tbody tr th td a img em strong s br hr span figure figcaption #text'.split(
      ' ',
    ),
  )
  const words = fc.constantFrom(
    '<script>',
    '<img onerror=x>',
    '# ',
    '- ',
    '`',
    '|',
    '**',
    '*',
    '[',
    ']',
    '(',
    ')',
    '\n',
    '"',
    ' ',
    'javascript:',
    '> ',
    '```',
    '    ',
    '|---|',
    '1. ',
    '&lt;',
    'a',
  )
  fc.assert(
    fc.property(fc.array(words, { maxLength: 40 }), (parts) => {
      const visit = (node: {
        nodeName: string
        childNodes?: unknown[]
        attrs?: { name: string; value: string }[]
      }): void => {
        assert.ok(known.has(node.nodeName), node.nodeName)
        for (const { name, value } of node.attrs ?? []) {
          assert.ok(['id', 'class', 'href', 'src', 'alt', 'title', 'start', 'tabindex'].includes(name), name)
          assert.ok(!value.startsWith('javascript:'))
        }
        for (const child of node.childNodes ?? []) visit(child as typeof node)
      }
      for (const node of parseFragment(html(parts.join(''))).childNodes) visit(node as never)
    }),
  )
})
