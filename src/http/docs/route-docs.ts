import { createHash } from 'node:crypto'
import type { Context, Hono } from 'hono'
import type { ApiBindings } from '../api/router.ts'
import { escapeHtml } from '../pages/page.ts'
import { securityHeaders } from '../pages/security-headers.ts'
import type { Site } from '../site.ts'
import { apiReference, type OpenApi } from './api-reference.ts'
import type { DocPage, Documentation } from './documentation.ts'
import { type LayoutOptions, layout } from './layout.ts'
import { docsStyle } from './style.ts'

export type DocsOptions = {
  readonly site: Site
  readonly documentation: Documentation
  /** The text of openapi.json. */
  readonly openApi: string
  /** The address of a font of the dashboard's build, by the beginning of its file's name. */
  readonly fontPath: (name: string) => string | undefined
}

const queryMax = 200
const markdownType = 'text/markdown; charset=utf-8'

/** The documentation, from our own origin and without a script: pages, the same as Markdown, the API's reference, a search. */
export function routeDocs(app: Hono<ApiBindings>, { site, documentation, openApi, fontPath }: DocsOptions): void {
  const api = apiReference(JSON.parse(openApi) as OpenApi)
  const style = docsStyle({ text: fontPath('geist-latin'), code: fontPath('geist-mono-latin') })
  const llms = documentation.llms(site.publicUrl)
  const llmsFull = documentation.llmsFull()

  app.get('/docs/style.css', (context) => send(context, style, 'text/css; charset=utf-8'))
  app.get('/llms.txt', (context) => send(context, llms, markdownType))
  app.get('/llms-full.txt', (context) => send(context, llmsFull, markdownType))
  app.get('/docs/api', (context) =>
    html(context, { title: 'API reference', path: '/docs/api', main: api.html, headings: api.headings }),
  )
  app.get('/docs/search', (context) => {
    const query = (context.req.query('q') ?? '').slice(0, queryMax)
    return html(context, { title: 'Search', path: '/docs/search', main: renderHits(documentation, query), query })
  })
  app.get('/docs/*', (context) => {
    const path = context.req.path.replace(/\/$/, '')
    const asMarkdown = path.endsWith('.md') || accepts(context, 'text/markdown')
    const page = documentation.find(path.replace(/\.md$/, '').replace(/^\/docs\/index$/, '/docs'))
    if (page === undefined) return html(context, notFound(path), 404)
    return asMarkdown ? send(context, page.markdown, markdownType) : html(context, optionsOf(page))
  })

  function html(context: Context<ApiBindings>, options: LayoutOptions, status: 200 | 404 = 200): Response {
    return send(context, layout(documentation, options), 'text/html; charset=utf-8', status)
  }

  function send(context: Context<ApiBindings>, text: string, type: string, status: 200 | 404 = 200): Response {
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

function accepts(context: Context<ApiBindings>, type: string): boolean {
  const accept = context.req.header('accept') ?? ''
  return accept.includes(type) && !accept.includes('text/html')
}

function optionsOf({ title, path, html, headings }: DocPage): LayoutOptions {
  return { title, path, main: html, headings, hasMarkdown: true }
}

function renderHits(documentation: Documentation, query: string): string {
  const hits = documentation.search(query)
  const found = hits.map(
    ({
      page,
      section,
      excerpt,
    }) => `<div class="hit"><a href="${escapeHtml(page.path)}#${section.id}">${escapeHtml(page.title)}${section.heading === page.title ? '' : ` · ${escapeHtml(section.heading)}`}</a>
<p>${escapeHtml(excerpt)}</p></div>`,
  )
  const nothing = query === '' ? '<p>Type a word or two.</p>' : '<p>Nothing has all of these words. Try fewer.</p>'
  return `<h1>Search</h1>\n${query === '' ? '' : `<p>For “${escapeHtml(query)}”:</p>`}\n${found.join('\n') || nothing}`
}

function notFound(path: string): LayoutOptions {
  return {
    title: 'Not found',
    path,
    main: '<h1>There is no such page</h1>\n<p>It may have another name now: the search above looks through all of them, and <a href="/docs">the front page</a> lists them.</p>',
  }
}
