import { type Context, Hono } from 'hono'
import type { HonoBindings } from '../http/hono.ts'
import { pageAtItsName, type Site } from '../http/origin.ts'
import { type Visitor, visitorOf } from '../http/visitor.ts'
import { isOperatorPath, isPagePath } from './page-paths.ts'
import type { Asset, Dashboard } from './pages/dashboard.ts'
import { homePage } from './pages/home.ts'
import { securityHeaders } from './security-headers.ts'

/** The sources of the documentation: the folder `docs/`, and pages that the service generates, by file name. */
export type DocsSource = { readonly folder: string; readonly generated: Readonly<Record<string, string>> }

export type RoutePagesOptions = {
  readonly site: Site
  /** Undefined when it was not built: then a plain page replaces it. */
  readonly dashboard: Dashboard | undefined
  readonly docs: DocsSource
  /** The text of openapi.json. */
  readonly openApi: string
  readonly trustProxy: boolean
  readonly isOperator: (visitor: Visitor) => Promise<boolean>
  /** Throws when one network requests too many pages. */
  readonly admitVisitor: (exchange: HonoBindings['Bindings']) => Promise<void>
}

/** Serves browsers: the dashboard, the documentation, and the few pages that need no script. */
export function routePages(app: Hono<HonoBindings>, options: RoutePagesOptions): void {
  const { site, dashboard, docs, openApi } = options
  app.use(async (context, next) => {
    await options.admitVisitor(context.env)
    const page = isPageRequest(context)
      ? pageAtItsName(site, visitorOf(context.env.incoming, false), pathOf(context))
      : undefined
    if (page !== undefined) return context.redirect(page, 307)
    return next()
  })
  app.get('/openapi.json', (context) => context.body(openApi, 200, { 'content-type': 'application/json' }))
  const fontPath = (name: string) => dashboard?.pathOf(`/assets/${name}`, '.woff2')
  let docsSite: Promise<Hono<HonoBindings>> | undefined
  for (const path of ['/docs', '/docs/*', '/llms.txt', '/llms-full.txt'])
    app.get(path, async (context) => {
      docsSite ??= openDocs({ site, docs, openApi, fontPath })
      return (await docsSite).fetch(context.req.raw, context.env)
    })
  if (dashboard === undefined) {
    for (const path of ['/', '/login']) app.get(path, (context) => plain(context, homePage(site.publicUrl)))
    return
  }
  app.get('*', async (context, next) => {
    const { path } = context.req
    const acceptEncoding = context.req.header('accept-encoding') ?? ''
    const file = dashboard.find(path, acceptEncoding)
    if (file !== undefined) return send(context, file, 200)
    const isThere = isPagePath(path) && (!isOperatorPath(path) || (await isForOperator(context)))
    if (isThere) return send(context, dashboard.page(acceptEncoding), 200)
    // A person gets the not-found page, which the same script shows; a program gets the error as JSON.
    return isPageRequest(context) ? send(context, dashboard.page(acceptEncoding), 404) : next()
  })

  function isForOperator(context: Context<HonoBindings>): Promise<boolean> {
    return options.isOperator(visitorOf(context.env.incoming, options.trustProxy))
  }

  function plain(context: Context<HonoBindings>, html: string): Response | Promise<Response> {
    return context.html(html, 200, securityHeaders(site, 'inline too'))
  }

  function send(context: Context<HonoBindings>, asset: Asset, status: 200 | 404): Response {
    const headers = {
      'content-type': asset.type,
      etag: asset.etag,
      vary: 'accept-encoding',
      'cache-control': asset.immutable ? 'public, max-age=31536000, immutable' : 'no-cache',
      ...(asset.encoding !== undefined && { 'content-encoding': asset.encoding }),
      ...securityHeaders(site, 'own files'),
    }
    if (status === 200 && context.req.header('if-none-match') === asset.etag) return context.body(null, 304, headers)
    return context.body(new Uint8Array(asset.body), status, headers)
  }
}

/** Loaded with the first page that is requested: the parser and highlighter would delay every start. */
async function openDocs({
  site,
  docs,
  openApi,
  fontPath,
}: Pick<RoutePagesOptions, 'site' | 'docs' | 'openApi'> & { readonly fontPath: (name: string) => string | undefined }) {
  const { Documentation } = await import('./docs/documentation.ts')
  const { routeDocs } = await import('./docs/route-docs.ts')
  const app = new Hono<HonoBindings>()
  routeDocs(app, { site, documentation: Documentation.load(docs.folder, docs.generated), openApi, fontPath })
  return app
}

/**
 * True for pages that a person opens. Only these are redirected: a program that follows no redirects must find the API under any host
 * name.
 */
function isPageRequest(context: Context<HonoBindings>): boolean {
  const { method, path } = context.req
  return (
    (method === 'GET' || method === 'HEAD') &&
    !/^\/(api|v1)(\/|$)/.test(path) &&
    (context.req.header('accept') ?? '').includes('text/html')
  )
}

function pathOf(context: Context<HonoBindings>): string {
  const { pathname, search } = new URL(context.req.url)
  // Two slashes at the beginning would make the next part a host.
  return `/${pathname.replace(/^\/+/, '')}${search}`
}
