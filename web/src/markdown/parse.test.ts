import assert from 'node:assert/strict'
import { test } from 'node:test'
import { highlightRuns } from './highlight.ts'
import { nothingParsed, type Parsed, parseGrowing, type Token } from './parse.ts'

const document = `# Title

A paragraph with **bold** and a [link](https://example.com).

1. one
2. two

   still two

| a | b |
|---|--:|
| 1 | 2 |

\`\`\`ts
const fence = 'with

an empty line'
\`\`\`

> quote
lazy

Last.`

const shape = ({ blocks }: Parsed) => blocks.map(({ tokens }) => tokens.map(({ type }) => type))
const all = ({ blocks }: Parsed): readonly Token[] =>
  blocks.flatMap(({ tokens }) => tokens.flatMap((token) => [token, ...(token.children ?? [])]))

test('a text that grows chunk by chunk is parsed like the whole text', () => {
  for (const size of [1, 7, 50]) {
    let parsed = nothingParsed
    for (let end = 0; end < document.length + size; end += size) parsed = parseGrowing(document.slice(0, end), parsed)
    const whole = parseGrowing(document, nothingParsed)
    assert.deepEqual(shape(parsed), shape(whole))
    assert.equal(parsed.blocks.map(({ source }) => source).join(''), document)
  }
})

test('blocks that are finished are not parsed again', () => {
  const first = parseGrowing('One.\n\nTwo.\n\nThr', nothingParsed)
  const second = parseGrowing('One.\n\nTwo.\n\nThree.', first)
  assert.equal(second.blocks[0], first.blocks[0])
  assert.equal(second.blocks[1], first.blocks[1])
  assert.equal(second.blocks[2]!.tokens[1]!.content, 'Three.')
})

test('an edited text is parsed again', () => {
  const first = parseGrowing('One.\n\nTwo.', nothingParsed)
  assert.equal(parseGrowing('1.\n\nTwo.', first).blocks.at(-1)!.tokens[1]!.content, 'Two.')
})

test('HTML stays text, and only addresses of the web and of mail become links', () => {
  const hostile = [
    '<img src=x onerror=alert(1)> <script>alert(1)</script>',
    '[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](data:text/html,x) [d](vbscript:x) [e](//evil.example) [f](/funds)',
    '[g](&#106;avascript:alert(1)) [h](java&#10;script:alert(1)) <javascript:alert(1)>',
    '![x](javascript:alert(1)) ![y](data:image/svg+xml;base64,AA)',
    '[ref]\n\n[ref]: javascript:alert(1)',
  ]
  const tokens = all(parseGrowing(hostile.join('\n\n'), nothingParsed))
  assert.deepEqual(
    tokens.filter(({ type }) => /html|link|image/.test(type)).map(({ type }) => type),
    [],
  )
  const good = '[a](https://a.example) [b](http://b.example) <mailto:c@d.example> https://e.example'
  const links = all(parseGrowing(good, nothingParsed)).filter(({ type }) => type === 'link_open')
  assert.deepEqual(
    links.map((token) => token.attrGet('href')),
    ['https://a.example', 'http://b.example', 'mailto:c@d.example', 'https://e.example'],
  )
})

test('deep nesting ends at a limit', () => {
  const deepest = Math.max(...all(parseGrowing('> '.repeat(5_000), nothingParsed)).map(({ level }) => level), 0)
  assert.ok(deepest <= 40, String(deepest))
})

test('coloured code is the code itself, whatever it contains', () => {
  const code = `const a = "<b>&amp;'\`" // </span><span class="x">\n`
  for (const language of ['ts', 'python', 'html', 'nonsense', ''])
    assert.equal(
      highlightRuns(code, language)
        .map(({ text }) => text)
        .join(''),
      code,
    )
  assert.ok(highlightRuns(code, 'ts').some(({ className }) => className.includes('hljs-string')))
  assert.equal(highlightRuns('a'.repeat(30_000), 'ts').length, 1)
})
