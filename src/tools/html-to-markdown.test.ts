import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { htmlToMarkdown } from './html-to-markdown.ts'

const url = 'https://site.example/guide/page.html?x=1'

function markdownOf(body: string): string {
  return htmlToMarkdown(`<!doctype html><html><head><title>T</title></head><body>${body}</body></html>`, url).markdown
}

test('the article is read, the page around it is not', () => {
  const article = 'Long enough to be what the page is about. '.repeat(5)
  const { title, markdown } = htmlToMarkdown(
    `<title> The\n Page </title><body class="modal-open"><header role="banner">Logo</header><nav><a href="/a">Home</a></nav>
     <div class="cookie-banner">We value your privacy</div><div id="onetrust-consent">Accept all</div>
     <main><h1>Guide</h1><p>${article}</p><aside>Related</aside><div class="share-buttons">Tweet</div>
     <script>alert(1)</script><style>p{}</style><noscript>Enable JavaScript</noscript><p hidden>hidden</p>
     <p style="display: none">gone</p><button>Press</button></main><footer>Imprint</footer></body>`,
    url,
  )
  assert.equal(title, 'The Page')
  assert.equal(markdown, `# Guide\n\n${article.trim()}`)
})

test('headings, lists, quotes and emphasis keep their form', () => {
  assert.equal(
    markdownOf(
      '<h2>Steps</h2><ol><li>One<ul><li>inner</li></ul></li><li>Two</li></ol><blockquote><p>a</p><p>b</p></blockquote><hr><p>x <b> bold </b>and<em>so</em><br>next</p>',
    ),
    '## Steps\n\n1. One\n   - inner\n2. Two\n\n> a\n>\n> b\n\n---\n\nx **bold** and*so*\nnext',
  )
})

test('links are made absolute, and those that cannot be fetched become text', () => {
  assert.equal(
    markdownOf(
      '<p><a href="../other?a=1&amp;b=2#c">rel</a> <a href="/abs">abs</a> <a href="//cdn.example/x">cdn</a> <a href="javascript:alert(1)">js</a> <a href="mailto:a@b.c">mail</a> <a href="#top">top</a> <a href="data:text/html,x">data</a> <a href="/w_(x)">parens</a></p>',
    ),
    '[rel](https://site.example/other?a=1&b=2#c) [abs](https://site.example/abs) [cdn](https://cdn.example/x) js mail top data [parens](https://site.example/w_%28x%29)',
  )
  assert.equal(
    htmlToMarkdown('<base href="https://base.example/d/"><a href="e">f</a>', url).markdown,
    '[f](https://base.example/d/e)',
  )
})

test('tables of data become tables, tables for layout become text', () => {
  assert.equal(
    markdownOf(
      '<table><caption>Prices</caption><thead><tr><th>Model</th><th>Price</th></tr></thead><tbody><tr><td>a|b</td><td><code>1.00</code></td></tr><tr><td>short</td></tr></tbody></table>',
    ),
    '**Prices**\n\n| Model | Price |\n| --- | --- |\n| a\\|b | `1.00` |\n| short |  |',
  )
  assert.equal(
    markdownOf('<table><tr><td><p>left</p></td><td><table><tr><td>in</td><td>ner</td></tr></table></td></tr></table>'),
    'left\n\n| in | ner |\n| --- | --- |',
  )
})

test('code is kept to the letter', () => {
  assert.equal(
    markdownOf(
      '<pre><code class="hljs language-ts">const a = 1 &lt; 2\n\n  indented   ```\n</code></pre><p>Use <code>a`b</code> or <code>c</code></p>',
    ),
    '````ts\nconst a = 1 < 2\n\n  indented   ```\n````\n\nUse `` a`b `` or `c`',
  )
})

test('a page is read even if all its element names look like noise', () => {
  assert.equal(markdownOf('<div class="modal"><p>All there is</p></div>'), 'All there is')
})

test('no nested or broken page makes the reader fail', () => {
  const tags = fc.constantFrom(
    'div',
    'p',
    'ul',
    'li',
    'table',
    'tr',
    'td',
    'b',
    'a',
    'pre',
    'svg',
    'math',
    'template',
    'select',
    'h1',
    'span',
    'frameset',
  )
  const piece = fc.oneof(
    tags.map((tag) => `<${tag}>`),
    tags.map((tag) => `</${tag}>`),
    fc.string(),
    fc.constantFrom('<!--', '-->', '<![CDATA[', '&#x', '&amp', '<a href="', '"', '\0', '<br>'),
  )
  fc.assert(
    fc.property(
      fc.array(piece, { maxLength: 60 }),
      (pieces) => typeof htmlToMarkdown(pieces.join(''), url).markdown === 'string',
    ),
  )
})
