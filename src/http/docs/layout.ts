import { escapeHtml } from '../pages/page.ts'
import type { Documentation } from './documentation.ts'
import type { Heading } from './markdown.ts'

export type LayoutOptions = {
  readonly title: string
  readonly path: string
  readonly main: string
  readonly headings?: readonly Heading[]
  /** Whether the page can be had as Markdown. */
  readonly hasMarkdown?: boolean
  readonly query?: string
}

/** Every page of the documentation: the way through it on the left, what is on it on the right, and no script at all. */
export function layout({ navigation }: Pick<Documentation, 'navigation'>, options: LayoutOptions): string {
  const { title, path, main, headings = [], hasMarkdown = false, query = '' } = options
  const groups = navigation.map(
    (group) => `<h2>${escapeHtml(group.title)}</h2>
<ul>${group.links.map((link) => `<li><a href="${escapeHtml(link.path)}"${link.path === path ? ' aria-current="page"' : ''}>${escapeHtml(link.title)}</a></li>`).join('')}</ul>`,
  )
  const parts = headings.filter(({ level }) => level === 2)
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(title)} · penny</title>
<link rel="icon" href="/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/docs/style.css">
${hasMarkdown ? `<link rel="alternate" type="text/markdown" href="${escapeHtml(path === '/docs' ? '/docs/index' : path)}.md">` : ''}
</head>
<body>
<a class="skip" href="#content">Skip to the text</a>
<header>
<a class="brand" href="/">Penny Router</a> <a href="/docs">Docs</a>
<form role="search" action="/docs/search" method="get">
<label class="hidden" for="query">Search the documentation</label>
<input id="query" name="q" type="search" placeholder="Search" value="${escapeHtml(query)}" maxlength="200" required>
<button>Search</button>
</form>
</header>
<div class="page">
<nav aria-label="Documentation"><details open><summary>Pages</summary>
${groups.join('\n')}
</details></nav>
<main id="content" tabindex="-1">
${main}
${hasMarkdown ? `<p class="alternate"><a href="${escapeHtml(path === '/docs' ? '/docs/index' : path)}.md">This page as Markdown</a></p>` : ''}
</main>
${parts.length > 1 ? `<aside><nav aria-label="On this page"><h2>On this page</h2><ul>${parts.map(({ id, text }) => `<li><a href="#${id}">${escapeHtml(text)}</a></li>`).join('')}</ul></nav></aside>` : ''}
</div>
</body>
</html>
`
}
