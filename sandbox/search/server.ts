import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type Document, readDocuments } from './documents.ts'
import { createFullText, type Match } from './full-text.ts'
import { renderPage } from './page.ts'

export type SearchServerOptions = {
  readonly host: string
  /** 0 for any free port. */
  readonly port: number
  /** The folder with README.md and docs/. */
  readonly root: string
}

export type SearchServer = {
  /** Without a path: `/search` and `/pages/…` are below it. */
  readonly url: string
  readonly port: number
  close(): Promise<void>
}

/** The origin of the pages, as clients see it. */
const siteOrigin = 'https://docs.penny.test'
const resultsMax = 20
const snippetCharactersMax = 400

/**
 * A search engine with SearXNG's JSON API over the project's own documentation, and the pages that it finds: those of
 * `https://docs.penny.test/…`, served below `/pages`.
 */
export async function startSearchServer(options: SearchServerOptions): Promise<SearchServer> {
  const documents = readDocuments(options.root)
  const find = createFullText(documents)
  const server = createServer((request, response) => {
    const { status, contentType, body } = answerTo(request.url ?? '/', documents, find)
    response.writeHead(status, { 'content-type': contentType, 'content-length': Buffer.byteLength(body) })
    response.end(body)
  })
  server.listen(options.port, options.host)
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    url: `http://${options.host.includes(':') ? `[${options.host}]` : options.host}:${port}`,
    port,
    async close() {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}

type Reply = { readonly status: number; readonly contentType: string; readonly body: string }

function answerTo(path: string, documents: readonly Document[], find: (query: string) => readonly Match[]): Reply {
  const url = URL.parse(path, 'http://search.invalid')
  if (url?.pathname === '/search') return answerSearch(url.searchParams, find)
  if (url?.pathname.startsWith('/pages/')) return answerPage(url.pathname.slice('/pages'.length), documents)
  return text(404, 'Nothing is here.')
}

function answerSearch(parameters: URLSearchParams, find: (query: string) => readonly Match[]): Reply {
  const query = parameters.get('q') ?? ''
  // As SearXNG does: 400 without a query, 403 for a format that is not enabled.
  if (query.trim() === '') return text(400, 'No query')
  if (parameters.get('format') !== 'json') return text(403, 'Forbidden')
  const results = find(query).slice(0, resultsMax).map(toResult)
  const nothing = { answers: [], corrections: [], infoboxes: [], suggestions: [], unresponsive_engines: [] }
  const body = JSON.stringify({ query, number_of_results: results.length, results, ...nothing })
  return { status: 200, contentType: 'application/json', body }
}

function toResult({ document, section, score }: Match, index: number): object {
  const url = new URL(document.path, siteOrigin)
  return {
    url: url.href,
    title:
      section.heading === document.title || section.heading === ''
        ? document.title
        : `${document.title}: ${section.heading}`,
    content: section.text.replaceAll(/\s+/g, ' ').slice(0, snippetCharactersMax),
    publishedDate: null,
    engine: 'documentation',
    engines: ['documentation'],
    parsed_url: ['https', url.host, url.pathname, '', '', ''],
    template: 'default.html',
    positions: [index + 1],
    score,
    category: 'general',
  }
}

function answerPage(path: string, documents: readonly Document[]): Reply {
  const document = documents.find((one) => one.path === path.replace(/(?<=.)\/$/, '').replace(/\.md$/, ''))
  if (document === undefined) return text(404, 'There is no such page.')
  if (path.endsWith('.md')) return { status: 200, contentType: 'text/markdown; charset=utf-8', body: document.markdown }
  return { status: 200, contentType: 'text/html; charset=utf-8', body: renderPage(document, documents) }
}

function text(status: number, body: string): Reply {
  return { status, contentType: 'text/plain; charset=utf-8', body: `${body}\n` }
}
