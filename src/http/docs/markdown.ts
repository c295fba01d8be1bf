import { escapeHtml } from '../pages/page.ts'

export type Heading = { readonly level: number; readonly id: string; readonly text: string }

export type Rendered = { readonly html: string; readonly headings: readonly Heading[] }

/** Where a link leads on the site; undefined: nowhere here, and its words stand alone. */
export type ResolveLink = (target: string) => string | undefined

const nestingMax = 8
const safeTarget = /^(https?:\/\/|mailto:|\/(?!\/)|#)/

/**
 * The Markdown that our own pages are written in, as HTML: headings, paragraphs, lists, tables, quotes, fenced and indented code,
 * and within lines code, links, pictures, strong and emphasis. HTML inside is text like any other: nothing a page says can become a tag.
 */
export function renderMarkdown(markdown: string, resolveLink: ResolveLink): Rendered {
  const headings: Heading[] = []
  const html = renderBlocks(markdown.replaceAll('\r\n', '\n').split('\n'), { headings, resolveLink, depth: 0 })
  return { html, headings }
}

type Place = { readonly headings: Heading[]; readonly resolveLink: ResolveLink; readonly depth: number }

/** A kind of block: how it begins, and how the lines from there on are rendered; it says how many it took. */
type Kind = {
  begins(lines: readonly string[], at: number): boolean
  render(lines: readonly string[], at: number, place: Place): { readonly html: string; readonly end: number }
}

const isBlank = (line: string | undefined) => line === undefined || line.trim() === ''
const listItem = /^( *)([-*]|\d+\.) +(.*)$/

const fence: Kind = {
  begins: (lines, at) => lines[at]!.startsWith('```'),
  render(lines, at) {
    const close = lines.findIndex((line, index) => index > at && line.startsWith('```'))
    const end = close === -1 ? lines.length : close
    const [language] = lines[at]!.slice(3).trim().split(' ')
    return { html: codeBlock(lines.slice(at + 1, end), language), end: end + 1 }
  },
}

const indentedCode: Kind = {
  begins: (lines, at) => lines[at]!.startsWith('    ') && isBlank(lines[at - 1]),
  render(lines, at) {
    let end = at
    while (end < lines.length && (lines[end]!.startsWith('    ') || isBlank(lines[end]))) end += 1
    const code = lines.slice(at, end).map((line) => line.slice(4))
    while (code.at(-1) === '') code.pop()
    return { html: codeBlock(code, undefined), end }
  },
}

const heading: Kind = {
  begins: (lines, at) => /^#{1,6} /.test(lines[at]!),
  render(lines, at, place) {
    const [, marks, text, given] = /^(#{1,6}) +(.*?)(?: +\{#([\w-]+)\})?$/.exec(lines[at]!)!
    const level = marks!.length
    const id = given ?? uniqueId(plainText(text!), place.headings)
    place.headings.push({ level, id, text: plainText(text!) })
    return { html: `<h${level} id="${id}">${inline(text!, place)}</h${level}>`, end: at + 1 }
  },
}

const table: Kind = {
  begins: (lines, at) => lines[at]!.startsWith('|') && /^\|[ :|-]+\|?$/.test(lines[at + 1] ?? ''),
  render(lines, at, place) {
    let end = at + 2
    while (lines[end]?.startsWith('|')) end += 1
    const row = (line: string, tag: 'th' | 'td') =>
      `<tr>${cellsOf(line)
        .map((cell) => `<${tag}>${inline(cell, place)}</${tag}>`)
        .join('')}</tr>`
    const body = lines.slice(at + 2, end).map((line) => row(line, 'td'))
    const head = row(lines[at]!, 'th')
    // Wide tables scroll by themselves, with the keyboard too, and not the page.
    return {
      html: `<div class="table" tabindex="0"><table><thead>${head}</thead><tbody>${body.join('')}</tbody></table></div>`,
      end,
    }
  },
}

const list: Kind = {
  begins: (lines, at) => listItem.test(lines[at]!),
  render(lines, at, place) {
    const [, indent = '', mark = ''] = listItem.exec(lines[at]!)!
    const tag = /\d/.test(mark) ? 'ol' : 'ul'
    const items: string[][] = []
    let end = at
    for (; end < lines.length; end += 1) {
      const line = lines[end]!
      const item = listItem.exec(line)
      if (item !== null && item[1] === indent) items.push([item[3]!])
      else if (isBlank(line) && isDeeper(lines[end + 1], indent)) items.at(-1)!.push('')
      else if (isBlank(line) && listItem.exec(lines[end + 1] ?? '')?.[1] === indent) continue
      else if (isDeeper(line, indent)) items.at(-1)!.push(line.slice(indent.length + 2))
      else if (isBlank(line) || item !== null || startsBlock(lines, end)) break
      // A line that goes on without being indented still belongs to the sentence before it.
      else items.at(-1)!.push(line)
    }
    const rendered = items.map((item) => `<li>${renderItem(item, place)}</li>`)
    return { html: `<${tag}>${rendered.join('')}</${tag}>`, end }
  },
}

const quote: Kind = {
  begins: (lines, at) => lines[at]!.startsWith('>'),
  render(lines, at, place) {
    let end = at
    while (lines[end]?.startsWith('>')) end += 1
    const inside = lines.slice(at, end).map((line) => line.replace(/^> ?/, ''))
    return { html: `<blockquote>${renderBlocks(inside, deeper(place))}</blockquote>`, end }
  },
}

const kinds = [fence, heading, table, quote, indentedCode, list]

function renderBlocks(lines: readonly string[], place: Place): string {
  const parts: string[] = []
  let at = 0
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at += 1
      continue
    }
    const kind = place.depth > nestingMax ? undefined : kinds.find((candidate) => candidate.begins(lines, at))
    const { html, end } = kind?.render(lines, at, place) ?? paragraph(lines, at, place)
    parts.push(html)
    at = end
  }
  return parts.join('\n')
}

function paragraph(lines: readonly string[], at: number, place: Place) {
  let end = at + 1
  while (end < lines.length && !isBlank(lines[end]) && !startsBlock(lines, end)) end += 1
  return { html: `<p>${inline(lines.slice(at, end).join('\n'), place)}</p>`, end }
}

function startsBlock(lines: readonly string[], at: number): boolean {
  return kinds.some((kind) => kind !== indentedCode && kind.begins(lines, at))
}

/** An item of one paragraph needs none around it; one that holds more is a page of its own. */
function renderItem(lines: readonly string[], place: Place): string {
  const isPlain = lines.every((line, index) => index === 0 || (!isBlank(line) && !startsBlock(lines, index)))
  return isPlain ? inline(lines.join('\n'), place) : renderBlocks(lines, deeper(place))
}

function deeper(place: Place): Place {
  return { ...place, depth: place.depth + 1 }
}

function isDeeper(line: string | undefined, indent: string): boolean {
  return line !== undefined && !isBlank(line) && line.startsWith(`${indent}  `)
}

function codeBlock(lines: readonly string[], language: string | undefined): string {
  const name = language === undefined || language === '' ? '' : ` class="language-${escapeHtml(language)}"`
  return `<pre tabindex="0"><code${name}>${escapeHtml(lines.join('\n'))}\n</code></pre>`
}

/** Cells stand between bars; a bar inside code, or behind a backslash, is text. */
function cellsOf(line: string): readonly string[] {
  const cells = line
    .trim()
    .replace(/^\||\|$/g, '')
    .match(/(?:`[^`]*`|\\\||[^|])*(?:\||$)/g)
  return (cells ?? []).slice(0, -1).map((cell) => cell.replace(/\|$/, '').replaceAll('\\|', '|').trim())
}

// What stands first wins: nothing inside code is anything else.
const inlineMarks =
  /(`+)(.+?)\1|!\[([^\]]*)\]\(([^()\s]+)\)|\[((?:`[^`]*`|[^[\]`])+)\]\(([^()\s]+)\)|\*\*(.+?)\*\*|(?<![\w*])\*([^*\s](?:[^*]*[^*\s])?)\*(?![\w*])/gs

function inline(text: string, place: Place): string {
  let html = ''
  let end = 0
  for (const match of text.matchAll(inlineMarks)) {
    html += escapeHtml(text.slice(end, match.index)) + renderMark(match, place)
    end = match.index + match[0].length
  }
  return html + escapeHtml(text.slice(end))
}

function renderMark(match: RegExpExecArray, place: Place): string {
  const [, , code, alternative, picture, words, target, strong, emphasis] = match
  if (code !== undefined) return `<code>${escapeHtml(code.trim())}</code>`
  if (strong !== undefined) return `<strong>${inline(strong, place)}</strong>`
  if (emphasis !== undefined) return `<em>${inline(emphasis, place)}</em>`
  const address = place.resolveLink((picture ?? target)!)
  const isSafe = address !== undefined && safeTarget.test(address)
  if (picture !== undefined) return isSafe ? `<img src="${escapeHtml(address)}" alt="${escapeHtml(alternative!)}">` : ''
  return isSafe ? `<a href="${escapeHtml(address)}">${inline(words!, place)}</a>` : inline(words!, place)
}

/** The words without their marks. */
export function plainText(text: string): string {
  return text.replaceAll(/!?\[([^\]]*)\]\([^()\s]*\)/g, '$1').replaceAll(/[`*]/g, '')
}

function uniqueId(text: string, taken: readonly Heading[]): string {
  const name =
    text
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}]+/gu, '-')
      .replace(/^-|-$/g, '') || 'section'
  const same = taken.filter(({ id }) => id === name || id.startsWith(`${name}-`)).length
  return same === 0 ? name : `${name}-${same + 1}`
}
