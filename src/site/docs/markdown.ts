import MarkdownIt, { type Token } from 'markdown-it'
import { escapeHtml } from '../page.ts'
import { highlight } from './highlight.ts'

export type Heading = { readonly level: number; readonly id: string; readonly text: string }

/** The content under one heading, for the search. Prose and code are separate, because only prose makes a readable excerpt. */
export type Section = { readonly heading: string; readonly id: string; readonly text: string; readonly code: string }

export type Rendered = {
  readonly html: string
  readonly headings: readonly Heading[]
  readonly sections: readonly Section[]
}

/** Maps a link target to an address on the site. Undefined: the target is not on the site, and only the link text is shown. */
export type ResolveLink = (target: string) => string | undefined

const nestingMax = 20
const safeTarget = /^(https?:\/\/|mailto:|\/(?!\/)|#)/

/** Languages that show the same call. Adjacent blocks in different ones become tabs. */
const tabLabels: Readonly<Record<string, string>> = {
  sh: 'curl',
  python: 'Python',
  js: 'Node',
  go: 'Go',
}

const parser = new MarkdownIt({ html: false, linkify: false, typographer: false, maxNesting: nestingMax })
// Accept every link here: links are checked after they are resolved.
parser.validateLink = () => true
parser.renderer.rules.fence = (tokens, index) => codeBlock(tokens[index]!)
parser.renderer.rules.code_block = (tokens, index) => codeBlock(tokens[index]!)
// Wide tables scroll by themselves, also by keyboard, so that the page does not scroll sideways.
parser.renderer.rules.table_open = () => '<div class="table" tabindex="0"><table>\n'
// Our Content-Security-Policy allows no inline styles.
for (const cell of ['th_open', 'td_open'])
  parser.renderer.rules[cell] = (tokens, index) => {
    const { tag, attrs } = tokens[index]!
    return attrs?.some(([, value]) => value === 'text-align:right') === true ? `<${tag} class="number">` : `<${tag}>`
  }
parser.renderer.rules.table_close = () => '</table></div>\n'

/** Renders our own pages: CommonMark with tables. HTML in the source is shown as text, so a page can never inject a tag. */
export function renderMarkdown(markdown: string, resolveLink: ResolveLink): Rendered {
  const tokens = parser.parse(markdown, {})
  for (const { children } of tokens) if (children !== null) resolveTargets(children, resolveLink)
  const headings = identifyHeadings(tokens)
  markTabs(tokens)
  const html = parser.renderer.render(tokens, parser.options, {}).trimEnd()
  return { html, headings, sections: sectionsOf(tokens, headings) }
}

/** The text without Markdown marks. */
export function plainText(markdown: string): string {
  return textOf(parser.parseInline(markdown, {})[0]?.children ?? [])
}

/** A block of code with its language highlighted. */
export function renderCode(code: string, language: string): string {
  return `<pre tabindex="0"><code class="language-${escapeHtml(language)}">${highlight(code, language)}\n</code></pre>\n`
}

/** The same call in several languages, as tabs. Without JavaScript the blocks follow each other, each with its label. */
export function renderTabs(blocks: readonly { readonly language: string; readonly code: string }[]): string {
  const labelled = blocks.map(({ language, code }) => captioned(language, renderCode(code, language)))
  return `<div class="tabs">\n${labelled.join('')}</div>\n`
}

function codeBlock(token: Token): string {
  const [language = ''] = token.info.trim().split(' ')
  const code = token.content.trimEnd()
  const html =
    language === '' ? `<pre tabindex="0"><code>${escapeHtml(code)}\n</code></pre>\n` : renderCode(code, language)
  const tab = (token.meta as { readonly tab: Tab } | null)?.tab
  if (tab === undefined) return html
  return `${tab.isFirst ? '<div class="tabs">\n' : ''}${captioned(language, html)}${tab.isLast ? '</div>\n' : ''}`
}

function captioned(language: string, html: string): string {
  return `<figure><figcaption>${tabLabels[language] ?? escapeHtml(language)}</figcaption>${html}</figure>\n`
}

function resolveTargets(children: Token[], resolveLink: ResolveLink): void {
  for (const [index, token] of children.entries()) {
    if (token.type !== 'link_open' && token.type !== 'image') continue
    const attribute = token.type === 'image' ? 'src' : 'href'
    const address = resolveLink(String(token.attrGet(attribute)))
    if (address !== undefined && safeTarget.test(address)) token.attrSet(attribute, address)
    else if (token.type === 'image') blank(token)
    else {
      blank(token)
      // Links do not nest: the next one that closes is this one's.
      blank(children.slice(index).find(({ type }) => type === 'link_close')!)
    }
  }
}

function blank(token: Token): void {
  token.type = 'text'
  token.tag = ''
  token.nesting = 0
  token.content = ''
}

/** Gives each heading its id: the one written as `{#id}` after it, or one made of its words. */
function identifyHeadings(tokens: readonly Token[]): readonly Heading[] {
  const headings: Heading[] = []
  for (const [index, token] of tokens.entries()) {
    if (token.type !== 'heading_open') continue
    const children = tokens[index + 1]!.children ?? []
    const last = children.at(-1)
    const given = last?.type === 'text' ? / *\{#([\w-]+)\}$/.exec(last.content) : null
    if (given !== null) last!.content = last!.content.slice(0, given.index)
    const text = textOf(children)
    const id = given?.[1] ?? uniqueId(text, headings)
    token.attrSet('id', id)
    headings.push({ level: Number(token.tag.slice(1)), id, text })
  }
  return headings
}

function uniqueId(text: string, taken: readonly Heading[]): string {
  const name =
    text
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}]+/gu, '-')
      .replace(/^-|-$/g, '') || 'section'
  const isTaken = (id: string) => taken.some((heading) => heading.id === id)
  let id = name
  for (let number = 2; isTaken(id); number += 1) id = `${name}-${number}`
  return id
}

/** Marks a code block as one of several tabs. */
type Tab = { readonly isFirst: boolean; readonly isLast: boolean }

/** Adjacent code blocks in different languages of `tabLabels` show the same call: they become one group of tabs. */
function markTabs(tokens: readonly Token[]): void {
  for (let at = 0; at < tokens.length; at += 1) {
    const run = tabRun(tokens, at)
    if (run.length < 2) continue
    for (const [index, token] of run.entries())
      token.meta = { tab: { isFirst: index === 0, isLast: index === run.length - 1 } satisfies Tab }
    at += run.length - 1
  }
}

function tabRun(tokens: readonly Token[], at: number): readonly Token[] {
  const languages = new Set<string>()
  let end = at
  for (; end < tokens.length; end += 1) {
    const { type, info } = tokens[end]!
    const [language = ''] = info.trim().split(' ')
    if (type !== 'fence' || !(language in tabLabels) || languages.has(language)) break
    languages.add(language)
  }
  return tokens.slice(at, end)
}

function sectionsOf(tokens: readonly Token[], headings: readonly Heading[]): readonly Section[] {
  const sections: { heading: string; id: string; prose: string[]; code: string[] }[] = []
  let isHeading = false
  for (const token of tokens) {
    if (token.type === 'heading_open') {
      const { text, id } = headings[sections.length]!
      sections.push({ heading: text, id, prose: [], code: [] })
      isHeading = true
    } else if (token.type === 'heading_close') isHeading = false
    else if (token.type === 'inline' && !isHeading) sections.at(-1)?.prose.push(textOf(token.children ?? []))
    else if (token.type === 'fence' || token.type === 'code_block') sections.at(-1)?.code.push(token.content)
  }
  return sections.map(({ heading, id, prose, code }) => ({
    heading,
    id,
    text: prose.filter(Boolean).join(' ').replaceAll(/\s+/g, ' '),
    code: code.join('\n'),
  }))
}

function textOf(children: readonly Token[]): string {
  return children
    .map(({ type, content }) => (type === 'softbreak' || type === 'hardbreak' ? ' ' : type === 'image' ? '' : content))
    .join('')
}
