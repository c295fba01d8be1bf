import type { Document } from './documents.ts'

/** A typical page of a documentation site, including navigation, so that web fetch has something to leave out. */
export function renderPage({ title, markdown }: Document, links: readonly { path: string; title: string }[]): string {
  const menu = links.map((link) => `<li><a href="${escapeHtml(link.path)}">${escapeHtml(link.title)}</a></li>`).join('')
  return [
    `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${escapeHtml(title)} · Penny Router</title></head><body>`,
    `<nav aria-label="Pages"><ul>${menu}</ul></nav>`,
    `<main><article>${renderMarkdown(markdown)}</article></main>`,
    '<footer>Served by the sandbox.</footer></body></html>',
  ].join('\n')
}

type Block = { readonly lines: readonly string[]; readonly next: number }

/** Renders the Markdown that this project uses: headings, paragraphs, lists, tables, quotes, fenced code. */
export function renderMarkdown(markdown: string): string {
  const lines = markdown.split('\n')
  const html: string[] = []
  let at = 0
  while (at < lines.length) {
    const line = lines[at]!
    const heading = /^(#{1,6}) +(.+)$/.exec(line)
    if (line.trim() === '') at += 1
    else if (heading !== null) {
      html.push(`<h${heading[1]!.length}>${inline(heading[2]!)}</h${heading[1]!.length}>`)
      at += 1
    } else {
      const render = blocks.find(([starts]) => starts.test(line))![1]
      const block = takeBlock(lines, at)
      html.push(render(block.lines))
      at = block.next
    }
  }
  return html.join('\n')
}

const blocks: readonly (readonly [starts: RegExp, render: (lines: readonly string[]) => string])[] = [
  [/^```/, ([, ...lines]) => `<pre><code>${escapeHtml(lines.join('\n'))}</code></pre>`],
  [/^\|/, renderTable],
  [
    /^>/,
    (lines) => `<blockquote><p>${inline(lines.map((line) => line.replace(/^> ?/, '')).join(' '))}</p></blockquote>`,
  ],
  [/^ *[-*] /, (lines) => `<ul>${items(lines, /^ *[-*] /)}</ul>`],
  [/^ *\d+\. /, (lines) => `<ol>${items(lines, /^ *\d+\. /)}</ol>`],
  [/^/, (lines) => `<p>${inline(lines.join(' '))}</p>`],
]

/** A block ends at the closing fence of code, or else at an empty line or a heading. */
function takeBlock(lines: readonly string[], from: number): Block {
  const ends = lines[from]!.startsWith('```') ? /^```/ : /^(?:\s*$|#{1,6} |```)/
  const length = lines.slice(from + 1).findIndex((line) => ends.test(line))
  const next = length === -1 ? lines.length : from + 1 + length
  const closed = lines[next]?.startsWith('```') === true && lines[from]!.startsWith('```')
  return { lines: lines.slice(from, next), next: closed ? next + 1 : next }
}

function renderTable(lines: readonly string[]): string {
  const [header = '', , ...rows] = lines
  const body = rows.map((row) => `<tr>${cells(row, 'td')}</tr>`).join('')
  return `<table><thead><tr>${cells(header, 'th')}</tr></thead><tbody>${body}</tbody></table>`
}

function cells(row: string, tag: string): string {
  const texts = row
    .trim()
    .replace(/^\||\|$/g, '')
    .split(/(?<!\\)\|/)
  return texts.map((text) => `<${tag}>${inline(text.trim().replaceAll('\\|', '|'))}</${tag}>`).join('')
}

/** One item per list mark; lines without one continue the item above. */
function items(lines: readonly string[], mark: RegExp): string {
  const texts: string[] = []
  for (const line of lines) {
    if (mark.test(line) || texts.length === 0) texts.push(line.replace(mark, ''))
    else texts.push(`${texts.pop()} ${line.trim()}`)
  }
  return texts.map((text) => `<li>${inline(text)}</li>`).join('')
}

/** Code spans first: other marks inside them do not count. */
function inline(text: string): string {
  return text
    .split(/(`[^`]+`)/)
    .map((part) => (part.startsWith('`') ? `<code>${escapeHtml(part.slice(1, -1))}</code>` : marks(escapeHtml(part))))
    .join('')
}

function marks(text: string): string {
  return text
    .replaceAll(/\[([^\]]*)\]\(([^()\s]+)\)/g, '<a href="$2">$1</a>')
    .replaceAll(/\*\*([^*]+)\*\*/g, '<strong>$1</strong>')
    .replaceAll(/\*([^*\s][^*]*)\*/g, '<em>$1</em>')
}

function escapeHtml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
}
