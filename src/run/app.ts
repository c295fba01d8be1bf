import type { IncomingMessage, RequestListener } from 'node:http'
import { getRequestListener } from '@hono/node-server'
import { Hono, type HonoRequest } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { Gate } from '../api/gate.ts'
import { isOperatorOf } from '../api/operator.ts'
import { OperatorGate } from '../api/operator-gate.ts'
import { createPlaygroundCompletion } from '../api/playground.ts'
import { routeApi } from '../api/routes.ts'
import type { ApiServices } from '../api/services.ts'
import { ServiceError } from '../errors.ts'
import { authenticate } from '../http/authenticate.ts'
import { ClientDisconnectedError } from '../http/disconnect.ts'
import { errorResponse } from '../http/error-response.ts'
import type { Problems, Readiness } from '../http/health.ts'
import { type HonoBindings, honoPath } from '../http/hono.ts'
import type { MetricsPage } from '../http/metrics-page.ts'
import { hasBody, UploadAbortedError } from '../http/read-body.ts'
import { disconnectWhenBlocked, idHeaders, v1Headers } from '../http/send.ts'
import { UnknownUrlError } from '../http/unknown-url.ts'
import { answerUnread, refusalOfHead, unroutedResponse } from '../http/unrouted.ts'
import { visitorOf } from '../http/visitor.ts'
import { noOptions } from '../identity/key-options.ts'
import type { Session } from '../identity/sessions.ts'
import { createRequestId, formatRequestId } from '../ledger/request-id.ts'
import type { Standing } from '../observe/outcomes.ts'
import { contracts } from '../openapi/contracts/all.ts'
import { chatContracts } from '../openapi/contracts/chat.ts'
import { x402Contracts } from '../openapi/contracts/x402.ts'
import type { Dashboard } from '../site/pages/dashboard.ts'
import { type DocsSource, routePages } from '../site/route-pages.ts'
import { transportHeaders } from '../site/security-headers.ts'
import { createChatCompletion } from '../v1/create-chat-completion.ts'
import { getModel, listModels } from '../v1/list-models.ts'
import { createPaidCompletion, routeX402, type X402Services } from '../v1/x402.ts'

export type AppServices = ApiServices &
  Pick<X402Services, 'x402'> & {
    readonly dashboard: Dashboard | undefined
    readonly docs: DocsSource
    /** The text of openapi.json. */
    readonly openApi: string
    readonly metricsPage: MetricsPage
    readonly readiness: Readiness
    /** Aborted when this process is about to stop. */
    readonly stopping: AbortSignal
    /** Recent outcomes of upstream calls, for the status page. They do not affect readiness: the next call may succeed. */
    readonly standings: () => Readonly<Record<'model' | 'search', Standing | 'off'>>
  }

/** Creates the handler of all requests. Chat completions use Node's own objects; everything else goes through Hono. */
export function createApp(services: AppServices): RequestListener {
  const { lookUps, keys, site, chainServices, publicUrl, now } = services
  const isSandbox = chainServices.sandbox !== undefined
  const isOperator = (session: Session) => isOperatorOf(services, session)
  const gate = new Gate({ database: lookUps, keys, site, isSandbox, isOperator, now })
  const other = getRequestListener(createRoutes(services, gate).fetch, {
    overrideGlobalObjects: false,
    // `UnreadBodies` does that, within a rate.
    autoCleanupIncoming: false,
    // Health checks of load balancers still use HTTP/1.0, which has no Host header.
    hostname: new URL(publicUrl).host,
    errorHandler: (error) => unroutedResponse(error, publicUrl),
  })
  const discardBody = (incoming: IncomingMessage) =>
    void services.unreadBodies.discardOrClose(incoming, visitorOf(incoming, services.trustProxy).network)
  return (incoming, outgoing) => {
    const [sentPath] = (incoming.url ?? '').split('?', 1)
    incoming.url = withoutExtraSlashes(incoming.url ?? '')
    const path = readPath(incoming)
    const isPost = incoming.method === 'POST'
    const refusal = refusalOfHead(incoming)
    if (refusal !== undefined) answerUnread(refusal, publicUrl, outgoing)
    else if (isPost && path === chatPath) void createChatCompletion(services, incoming, outgoing)
    else if (isPost && path === paidChatPath) void createPaidCompletion(services, incoming, outgoing)
    else if (isPost && path === playgroundPath) void createPlaygroundCompletion(services, gate, incoming, outgoing)
    else {
      if (hasBody(incoming)) outgoing.once('finish', () => discardBody(incoming))
      outgoing.once('prefinish', () => disconnectWhenBlocked(outgoing, services.answering.blockedMsMax))
      // Proxies deny this path to strangers. Not all of them deny its other spellings, such as `//metrics` and `/%6detrics`.
      if (sentPath === '/metrics') void services.metricsPage.answer(incoming, outgoing)
      else void other(incoming, outgoing)
    }
  }
}

const stoppingProblem: Problems = { process: 'this process is stopping; send requests to another one' }
const chatPath = chatContracts.createChatCompletion.path
const paidChatPath = x402Contracts.createPaidCompletion.path
const playgroundPath = chatContracts.createPlaygroundCompletion.path

/** Clients configure base URLs with or without a slash at the end: repeated and trailing slashes are ignored. */
function withoutExtraSlashes(url: string): string {
  if (!/\/\/|\/(?:$|\?)/.test(url)) return url
  const [, origin, path, query] = /^(https?:\/\/[^/?]*)?([^?]*)(.*)$/is.exec(url)!
  return `${origin ?? ''}${path!.replace(/\/{2,}/g, '/').replace(/(?<=.)\/$/, '')}${query}`
}

/** The path as Hono reads it: a proxy's client sends an absolute URL, and some clients percent-encode letters (`%63`). */
function readPath({ url = '' }: IncomingMessage): string {
  if (url.startsWith('/') && !/%|\/\./.test(url)) return url.split('?', 1)[0]!
  const path = URL.parse(url.startsWith('/') ? `http://penny${url}` : url)?.pathname ?? url
  try {
    return decodeURI(path)
  } catch {
    return path
  }
}

/** `/api` for commands on this machine. The caller lets only the owner of the data folder reach it. */
export function createOperatorApi(services: AppServices): RequestListener {
  const app = createRefusingApp(services)
  routeApi(app, new OperatorGate(services), services)
  return getRequestListener(app.fetch, { overrideGlobalObjects: false })
}

/** Numbers all requests and answers errors; it has no routes yet. */
function createRefusingApp(services: AppServices): Hono<HonoBindings> {
  const { publicUrl, site } = services
  const app = new Hono<HonoBindings>()
  app.use(async (context, next) => {
    const requestId = formatRequestId(createRequestId(0, Date.now()))
    context.set('requestId', requestId)
    await next()
    const own = isForOtherPages(context.req) ? v1Headers(requestId) : idHeaders(requestId)
    const headers = { ...own, ...transportHeaders(site) }
    for (const [name, value] of Object.entries(headers)) context.header(name, value)
    // Hono answers HEAD like GET and leaves out the body: with it, its length would be lost.
    if (context.req.method === 'HEAD' && context.res.headers.get('content-type')?.startsWith('application/json')) {
      const body = await context.res.clone().arrayBuffer()
      context.header('content-length', String(body.byteLength))
    }
  })
  app.notFound((context) => refuse(new UnknownUrlError(context.req.method, context.req.path), context))
  app.onError((error, context) => {
    const isClients =
      error instanceof ServiceError || error instanceof ClientDisconnectedError || error instanceof UploadAbortedError
    if (!isClients) services.onError(error, context.get('requestId'))
    return refuse(error, context)
  })
  return app

  function refuse(error: unknown, context: RefusalContext): Response {
    const response = errorResponse(error, { requestId: context.get('requestId'), publicUrl })
    return context.json(response.body, response.status, { ...response.headers })
  }
}

function createRoutes(services: AppServices, gate: Gate): Hono<HonoBindings> {
  const { prices, inFlightCap, publicUrl } = services
  const modelListing = { prices, hasSearch: services.admission.web.search !== undefined, inFlightCap, publicUrl }
  const app = createRefusingApp(services)
  for (const path of ['/v1/*', '/x402/v1/*', requestPath]) {
    app.options(path, (context) => {
      context.header('access-control-allow-methods', path === requestPath ? 'GET, OPTIONS' : 'GET, POST, OPTIONS')
      context.header(
        'access-control-allow-headers',
        context.req.header('access-control-request-headers') ?? 'authorization, content-type',
      )
      context.header('access-control-max-age', '86400')
      return context.body(null, 204)
    })
  }

  const admitVisitor = ({ incoming, outgoing }: HonoBindings['Bindings']) => {
    const { network } = visitorOf(incoming, services.trustProxy)
    return services.unpaid.admitVisitor({ outgoing, network })
  }
  const keyOptionsOf = async ({ env }: { env: HonoBindings['Bindings'] }) => {
    // The list is public: an invalid key, or one that cannot be looked up now, is ignored.
    const isAnonymous = env.incoming.headers.authorization === undefined
    const visitor = visitorOf(env.incoming, services.trustProxy)
    const bearer = isAnonymous ? undefined : await authenticate(services.keys, visitor).catch(() => undefined)
    if (bearer !== undefined) return services.keys.currentOptions(bearer).catch(() => bearer.options)
    await admitVisitor(env)
    return noOptions
  }
  app.get('/v1/models', async (context) => context.json(listModels(modelListing, await keyOptionsOf(context))))
  app.get('/v1/models/:id{.+}', async (context) =>
    context.json(getModel(context.req.param('id'), modelListing, await keyOptionsOf(context))),
  )
  app.get(x402Contracts.listPaidModels.path, async (context) => {
    await admitVisitor(context.env)
    return context.json(listModels(modelListing, noOptions))
  })
  routeX402(app, services)
  routeApi(app, gate, services)

  app.get('/healthz', (context) => context.json({ ok: true }))
  app.get('/readyz', async (context) => {
    const problems = services.stopping.aborted ? stoppingProblem : await services.readiness.problems()
    const ok = Object.keys(problems).length === 0
    return context.json({ ok, problems, parts: services.standings() }, ok ? 200 : 503)
  })

  for (const [path, methods] of knownMethods()) {
    app.all(path, (context) => {
      context.header('allow', methods)
      throw new ServiceError('method_not_allowed', `Method ${context.req.method} is not allowed. Allowed: ${methods}.`)
    })
  }
  routePages(app, { ...services, admitVisitor, isOperator: (visitor) => gate.isOperator(visitor) })
  return app
}

const requestPath = '/api/requests/:id{req_[^/]*}'

/**
 * Other sites' pages may read `/v1`, which requires a key, and what their requests cost. The rest of /api is only for the dashboard's
 * own pages, and so are requests that are authorized by a session.
 */
function isForOtherPages(request: HonoRequest): boolean {
  const { path, method } = request
  if (path.startsWith('/v1') || path.startsWith('/x402/v1')) return true
  const isRequest = /^\/api\/requests\/req_[^/]*$/.test(path)
  return isRequest && (method === 'OPTIONS' || (method === 'GET' && request.header('authorization') !== undefined))
}

type RefusalContext = {
  get(name: 'requestId'): string
  json(body: object, status: ContentfulStatusCode, headers: Record<string, string>): Response
}

/** The methods of every path, for 405 responses. */
function knownMethods(): ReadonlyMap<string, string> {
  const methods = new Map([
    ['/healthz', 'GET'],
    ['/readyz', 'GET'],
  ])
  for (const { path, method, access } of contracts) {
    // Routes for operators only are hidden from everyone else, for every method.
    if (access === 'operator') continue
    const known = methods.get(honoPath(path))
    methods.set(honoPath(path), known === undefined ? method : `${known}, ${method}`)
  }
  return methods
}
