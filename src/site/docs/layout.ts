import { escapeHtml } from '../page.ts'
import { type Documentation, markdownPath } from './documentation.ts'
import type { Heading } from './markdown.ts'

export type LayoutOptions = {
  readonly title: string
  readonly path: string
  readonly main: string
  readonly headings?: readonly Heading[]
  /** Whether the page is also available as Markdown. */
  readonly hasMarkdown?: boolean
  readonly query?: string
  /** One sentence for search engines. */
  readonly about?: string | undefined
}

/** Who reads a page: each reader sees the groups of their own pages. */
const audiences = [
  ['Use it', '/docs', ['Use it', 'Reference', 'How money moves']],
  ['Run it', '/docs/guides/self-hosting', ['Run it', 'Runbooks']],
  ['Contribute', '/docs/contents', ['Contribute']],
] as const

function audienceOf(navigation: Documentation['navigation'], path: string) {
  const group = navigation.find(({ links }) => links.some((link) => link.path === path))
  return audiences.find(([, , titles]) => titles.some((title) => title === group?.title)) ?? audiences[0]
}

/**
 * Every page of the documentation: navigation on the left, the page's own headings on the right. It works without JavaScript;
 * `/docs/site.js` adds copy buttons, tabs, the theme switch and search results while typing.
 */
export function layout({ navigation }: Pick<Documentation, 'navigation'>, options: LayoutOptions): string {
  const { title, path, main, headings = [], hasMarkdown = false, query = '', about = title } = options
  // The pages of the API reference have one link.
  const place = path.startsWith('/docs/api/') ? '/docs/api' : path
  const [audience, , shown] = audienceOf(navigation, place)
  const groups = navigation
    .filter((group) => shown.some((name) => name === group.title))
    .map(({ title: name, links }) => {
      const isOpen = name === shown[0] || links.some((link) => link.path === place)
      const items = links.map(
        (link) =>
          `<li><a href="${escapeHtml(link.path)}"${link.path === place ? ' aria-current="page"' : ''}>${escapeHtml(link.title)}</a></li>`,
      )
      return `<details${isOpen ? ' open' : ''}><summary>${escapeHtml(name)}</summary><ul>${items.join('')}</ul></details>`
    })
  const parts = headings.filter(({ level }) => level === 2)
  const markdown = escapeHtml(markdownPath(path))
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(title)} · Penny Router</title>
<meta name="description" content="${escapeHtml(about)}">
<link rel="icon" href="/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/docs/style.css">
<script src="/docs/site.js"></script>
${hasMarkdown ? `<link rel="alternate" type="text/markdown" href="${markdown}">` : ''}
</head>
<body>
<a class="skip" href="#content">Skip to content</a>
<header>
<a class="brand" href="/"><img src="/favicon.svg" alt="" width="20" height="20">Penny Router</a>
<nav class="top" aria-label="Site"><a href="/docs">Docs</a> <a href="/docs/api">API</a> <a href="/docs/models">Prices</a> <a href="/">Dashboard</a></nav>
<form role="search" action="/docs/search" method="get">
<label class="hidden" for="query">Search the documentation</label>
<input id="query" name="q" type="search" placeholder="Search" value="${escapeHtml(query)}" maxlength="200" autocomplete="off" required>
<button>Search</button>
</form>
<button type="button" class="theme">Dark</button>
<a class="menu" href="#navigation">Menu</a>
</header>
<div class="page">
<nav id="navigation" aria-label="Documentation"><a class="menu" href="#content">Close</a>
<p class="audiences">${audiences.map(([name, start]) => `<a href="${start}"${name === audience ? ' aria-current="true"' : ''}>${name}</a>`).join('')}</p>
${groups.join('\n')}
</nav>
<main id="content" tabindex="-1"${path === '/docs' ? ' class="home"' : ''}>
${main}
${hasMarkdown ? `<p class="alternate"><a href="${markdown}">This page as Markdown</a></p>` : ''}
</main>
${parts.length > 1 ? `<aside><nav aria-label="On this page"><h2>On this page</h2><ul>${parts.map(({ id, text }) => `<li><a href="#${escapeHtml(id)}">${escapeHtml(text)}</a></li>`).join('')}</ul></nav></aside>` : ''}
</div>
</body>
</html>
`
}
