import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { Context, Hono } from 'hono'
import type { HonoBindings } from '../../http/hono.ts'
import type { Site } from '../../http/origin.ts'
import { escapeHtml } from '../page.ts'
import { securityHeaders } from '../security-headers.ts'
import { apiReference, type OpenApi, type Recorded } from './api-reference.ts'
import type { DocPage, Documentation } from './documentation.ts'
import { type LayoutOptions, layout } from './layout.ts'
import { docsStyle } from './style.ts'

export type DocsOptions = {
  readonly site: Site
  readonly documentation: Documentation
  /** The text of openapi.json. */
  readonly openApi: string
  /** The path of a font from the dashboard's build, by the beginning of its file name. */
  readonly fontPath: (name: string) => string | undefined
}

const queryMax = 200
const aboutMax = 160
const markdownType = 'text/markdown; charset=utf-8'
const htmlType = 'text/html; charset=utf-8'

/** Serves the documentation from our own origin: pages, their Markdown, the API reference and a search. */
export function routeDocs(app: Hono<HonoBindings>, { site, documentation, openApi, fontPath }: DocsOptions): void {
  const style = docsStyle({ text: fontPath('geist-latin'), code: fontPath('geist-mono-latin') })
  const script = readFileSync(new URL('site.js', import.meta.url), 'utf8')
  const recorded = () => JSON.parse(readFileSync(new URL('samples.json', import.meta.url), 'utf8')) as Recorded
  const reference = once(() => apiReference(JSON.parse(openApi) as OpenApi, recorded(), site.publicUrl))

  app.get('/docs/style.css', (context) => send(context, style, 'text/css; charset=utf-8'))
  app.get('/docs/site.js', (context) => send(context, script, 'text/javascript; charset=utf-8'))
  app.get('/llms.txt', (context) => send(context, documentation.llms(site.publicUrl), markdownType))
  app.get('/llms-full.txt', (context) => send(context, documentation.llmsFull(), markdownType))
  app.get('/docs/api/*', (context) => {
    const page = reference().find(({ path }) => path === context.req.path.replace(/\/$/, ''))
    if (page === undefined) return html(context, notFound(context.req.path), 404)
    return html(context, { title: page.title, path: page.path, main: page.html, headings: page.headings })
  })
  app.get('/docs/search', (context) => {
    const query = queryOf(context)
    return html(context, { title: 'Search', path: '/docs/search', main: renderHits(documentation, query), query })
  })
  app.get('/docs/search.json', (context) => {
    const hits = documentation.search(queryOf(context)).map(({ page, section, excerpt }) => ({
      title: page.title,
      heading: section.heading,
      path: `${page.path}#${section.id}`,
      excerpt,
    }))
    return send(context, JSON.stringify({ hits }), 'application/json')
  })
  app.get('/docs/*', (context) => {
    const path = context.req.path.replace(/\/$/, '')
    const accept = context.req.header('accept') ?? ''
    const asMarkdown = path.endsWith('.md') || (accept.includes('text/markdown') && !accept.includes('text/html'))
    const page = documentation.find(path.replace(/\.md$/, '').replace(/^\/docs\/index$/, '/docs'))
    if (page === undefined) return html(context, notFound(path), 404)
    return asMarkdown ? send(context, page.markdown, markdownType) : html(context, optionsOf(page, site.publicUrl))
  })

  function html(context: Context<HonoBindings>, options: LayoutOptions, status: 200 | 404 = 200): Response {
    return send(context, layout(documentation, options), htmlType, status)
  }

  function send(context: Context<HonoBindings>, text: string, type: string, status: 200 | 404 = 200): Response {
    const etag = `"${createHash('sha256').update(text).digest('base64url').slice(0, 22)}"`
    const headers = {
      'content-type': type,
      etag,
      vary: 'accept',
      'cache-control': 'no-cache',
      ...securityHeaders(site, 'own files'),
    }
    if (status === 200 && context.req.header('if-none-match') === etag) return context.body(null, 304, headers)
    return context.body(text, status, headers)
  }
}

/** Computed when it is first needed, so that a start does not wait for it. */
function once<Value>(make: () => Value): () => Value {
  let made: Value | undefined
  return () => {
    made ??= make()
    return made
  }
}

function queryOf(context: Context<HonoBindings>): string {
  return (context.req.query('q') ?? '').slice(0, queryMax)
}

function optionsOf({ title, path, html: text, headings, sections }: DocPage, publicUrl: string): LayoutOptions {
  // The pages write an example's address; the reader can copy that of this service.
  const html = text.replaceAll('https://router.example', escapeHtml(publicUrl))
  const about = sections.find((section) => section.text !== '')?.text.slice(0, aboutMax)
  if (path !== '/docs') return { title, path, main: html, headings, hasMarkdown: true, about }
  // The front page shows each section as a card.
  const [intro, ...parts] = html.split(/(?=<h2 )/)
  const cards = parts.map((section) => `<section>${section}</section>`).join('\n')
  return { title: 'Documentation', path, main: `${intro}<div class="cards">${cards}</div>`, hasMarkdown: true, about }
}

function renderHits(documentation: Documentation, query: string): string {
  const hits = documentation.search(query)
  const found = hits.map(({ page, section, excerpt }) => {
    const place = section.heading === page.title ? '' : ` · ${escapeHtml(section.heading)}`
    return `<div class="hit"><a href="${escapeHtml(page.path)}#${section.id}">${escapeHtml(page.title)}${place}</a>
<p>${escapeHtml(excerpt)}</p></div>`
  })
  const nothing = query === '' ? '<p>Enter one or more words.</p>' : '<p>No matches. Try fewer or other words.</p>'
  const count = query === '' ? '' : `<p>${hits.length} results for “${escapeHtml(query)}”.</p>`
  return `<h1>Search</h1>\n${count}\n${found.join('\n') || nothing}`
}

function notFound(path: string): LayoutOptions {
  return {
    title: 'Not found',
    path,
    main: '<h1>Page not found</h1>\n<p>The page may have moved. Search above, or start at <a href="/docs">the documentation’s front page</a>.</p>',
  }
}
