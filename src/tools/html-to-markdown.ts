import type { DefaultTreeAdapterTypes } from 'parse5'
import {
  attribute,
  depthMax,
  findContent,
  type HtmlElement,
  type HtmlNode,
  isDropped,
  isElement,
  squeeze,
  textOf,
} from './html-content.ts'

type Context = {
  readonly base: string
  /** Characters of the whole root. A class name that looks like noise drops only an element with a small share of them. */
  readonly length: number
  readonly depth: number
}

const linkCharactersMax = 1_000
const cellsMax = 100

const inlineTags = new Set(
  'a abbr acronym b bdi bdo big br cite code data del dfn em font i img ins kbd label mark q rp rt ruby s samp small span strike strong sub sup time tt u var wbr'.split(
    ' ',
  ),
)

/** Converts the article of a page to Markdown: headings, paragraphs, lists, tables, code and links. Page furniture is left out. */
export function htmlToMarkdown(
  html: string,
  url: string,
): { readonly title: string | undefined; readonly markdown: string } {
  const { title, base, root } = findContent(html, url)
  if (root === undefined) return { title, markdown: '' }
  const blocks = blocksOf(root.childNodes, { base, length: textOf(root).length, depth: 0 })
  return { title, markdown: blocks.join('\n\n') }
}

/** Joins runs of text and inline elements between block elements into paragraphs. */
function blocksOf(nodes: readonly HtmlNode[], context: Context): string[] {
  if (context.depth > depthMax) return []
  const inside = { ...context, depth: context.depth + 1 }
  const blocks: string[] = []
  let run: HtmlNode[] = []
  const flush = () => {
    const text = paragraph(inlineOf(run, inside))
    if (text !== '') blocks.push(text)
    run = []
  }
  for (const node of nodes) {
    if (!isElement(node) || inlineTags.has(node.tagName)) run.push(node)
    else if (!isDropped(node, () => textOf(node).length / context.length)) {
      flush()
      blocks.push(...blockOf(node, inside))
    }
  }
  flush()
  return blocks
}

function blockOf(element: HtmlElement, context: Context): string[] {
  switch (element.tagName) {
    case 'h1':
    case 'h2':
    case 'h3':
    case 'h4':
    case 'h5':
    case 'h6':
      return some(
        squeeze(inlineOf(element.childNodes, context)),
        (text) => `${'#'.repeat(Number(element.tagName[1]))} ${text}`,
      )
    case 'pre':
      return some(textOf(element).replace(/^\n|\s+$/g, ''), (code) => fenced(code, languageOf(element)))
    case 'ul':
    case 'ol':
      return list(element, context)
    case 'table':
      return table(element, context)
    case 'blockquote':
      return some(blocksOf(element.childNodes, context).join('\n\n'), (text) =>
        text.replaceAll(/^/gm, '> ').replaceAll(/^> $/gm, '>'),
      )
    case 'hr':
      return ['---']
    case 'dt':
    case 'summary':
      return some(squeeze(inlineOf(element.childNodes, context)), (text) => `**${text}**`)
    default:
      return blocksOf(element.childNodes, context)
  }
}

function some(text: string, render: (text: string) => string): string[] {
  return text === '' ? [] : [render(text)]
}

function list(element: HtmlElement, context: Context): string[] {
  const items = element.childNodes
    .filter(isElement)
    .filter((item) => item.tagName === 'li' && !isDropped(item, () => 1))
  const lines = items.flatMap((item, index) => {
    const mark = element.tagName === 'ol' ? `${index + 1}. ` : '- '
    const text = blocksOf(item.childNodes, context).join('\n')
    return some(text, () => mark + text.replaceAll('\n', `\n${' '.repeat(mark.length)}`))
  })
  return some(lines.join('\n'), (text) => text)
}

/** Renders tables of data. A layout table is rendered as the blocks it contains. */
function table(element: HtmlElement, context: Context): string[] {
  const rows = rowsOf(element, 0).map((row) =>
    row.childNodes.filter(isElement).filter(({ tagName }) => tagName === 'td' || tagName === 'th'),
  )
  const columns = Math.min(Math.max(0, ...rows.map((cells) => cells.length)), cellsMax)
  if (columns < 2 || attribute(element, 'role') === 'presentation' || rows.flat().some(holdsTableOrCode)) {
    return rows.flat().flatMap((cell) => blocksOf(cell.childNodes, context))
  }
  const lines = rows.map((cells) => {
    const texts = cells.slice(0, columns).map((cell) => cellText(cell, context))
    return `| ${[...texts, ...Array<string>(columns - texts.length).fill('')].join(' | ')} |`
  })
  const [head = '', ...body] = lines
  const caption = element.childNodes.filter(isElement).find(({ tagName }) => tagName === 'caption')
  const captionText = caption === undefined ? '' : squeeze(inlineOf(caption.childNodes, context))
  return [...some(captionText, (text) => `**${text}**`), [head, `|${' --- |'.repeat(columns)}`, ...body].join('\n')]
}

function rowsOf(element: HtmlElement, depth: number): HtmlElement[] {
  if (depth > 1) return []
  return element.childNodes
    .filter(isElement)
    .flatMap((child) => (child.tagName === 'tr' ? [child] : rowsOf(child, depth + 1)))
}

function holdsTableOrCode(cell: HtmlElement): boolean {
  return cell.childNodes.filter(isElement).some(({ tagName }) => tagName === 'table' || tagName === 'pre')
}

function cellText(cell: HtmlElement, context: Context): string {
  return squeeze(blocksOf(cell.childNodes, context).join(' ')).replaceAll('|', '\\|')
}

function inlineOf(nodes: readonly HtmlNode[], context: Context): string {
  if (context.depth > depthMax) return ''
  const inside = { ...context, depth: context.depth + 1 }
  return nodes.map((node) => (isElement(node) ? inlineElement(node, inside) : textIn(node))).join('')
}

function textIn(node: HtmlNode): string {
  return node.nodeName === '#text'
    ? (node as DefaultTreeAdapterTypes.TextNode).value.replaceAll(/[ \t\r\n\f]+/g, ' ')
    : ''
}

function inlineElement(element: HtmlElement, context: Context): string {
  if (isDropped(element, () => 1)) return ''
  const inside = () => inlineOf(element.childNodes, context)
  switch (element.tagName) {
    case 'br':
      return '\n'
    case 'a':
      return link(squeeze(inside()), absolute(attribute(element, 'href'), context.base))
    case 'img':
      return image(squeeze(attribute(element, 'alt') ?? ''), absolute(attribute(element, 'src'), context.base))
    case 'code':
    case 'kbd':
    case 'samp':
    case 'tt':
      return codeSpan(squeeze(textOf(element)))
    case 'strong':
    case 'b':
      return marked(inside(), '**')
    case 'em':
    case 'i':
      return marked(inside(), '*')
    case 'del':
    case 's':
      return marked(inside(), '~~')
    default:
      // A block element inside a line: keep its words apart from their neighbours.
      return inlineTags.has(element.tagName) ? inside() : ` ${inside()} `
  }
}

/** Puts the marks next to the words and white space outside: Markdown ignores `** word **`. */
function marked(text: string, mark: string): string {
  const words = text.trim()
  if (words === '' || words.includes('\n')) return text
  return `${/^\s/.test(text) ? ' ' : ''}${mark}${words}${mark}${/\s$/.test(text) ? ' ' : ''}`
}

function link(text: string, target: string | undefined): string {
  return text === '' || target === undefined ? text : `[${text}](${target})`
}

function image(alt: string, source: string | undefined): string {
  return alt === '' || source === undefined ? '' : `![${alt}](${source})`
}

/** Returns only URLs that can be fetched. Scripts, mail addresses and fragments of the same page stay plain text. */
function absolute(target: string | undefined, base: string): string | undefined {
  if (target === undefined || target.startsWith('#')) return undefined
  const url = URL.parse(target.trim(), base)
  if (url === null || !/^https?:$/.test(url.protocol) || url.href.length > linkCharactersMax) return undefined
  return url.href.replaceAll('(', '%28').replaceAll(')', '%29')
}

function codeSpan(code: string): string {
  if (code === '') return ''
  return code.includes('`') ? `\`\` ${code} \`\`` : `\`${code}\``
}

function fenced(code: string, language: string): string {
  const runs = code.match(/`{3,}/g) ?? []
  const fence = '`'.repeat(Math.max(3, ...runs.slice(0, 1_000).map((run) => run.length + 1)))
  return `${fence}${language}\n${code}\n${fence}`
}

function languageOf(pre: HtmlElement): string {
  const code = pre.childNodes.filter(isElement).find(({ tagName }) => tagName === 'code')
  const names = `${attribute(pre, 'class') ?? ''} ${(code && attribute(code, 'class')) ?? ''}`.slice(0, 500)
  return /\b(?:language|lang|highlight-source)-([\w+#-]{1,20})/.exec(names)?.[1] ?? ''
}

/** Trims each line. Keeps the line breaks that `<br>` made. */
function paragraph(text: string): string {
  return text
    .split('\n')
    .map(squeeze)
    .join('\n')
    .replaceAll(/\n{3,}/g, '\n\n')
    .trim()
}
