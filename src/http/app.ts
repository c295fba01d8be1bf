import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { getRequestListener } from '@hono/node-server'
import { Hono } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import type { PriceList } from '../billing/price-list.ts'
import type { Database } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import { createRequestId, formatRequestId } from '../ledger/request-id.ts'
import type { Usdc } from '../money/usdc.ts'
import { authenticate } from './authenticate.ts'
import { errorResponse } from './error-response.ts'
import { errorsPage } from './pages/errors.ts'
import { homePage } from './pages/home.ts'
import { type ChatRouteServices, createChatCompletion } from './routes/create-chat-completion.ts'
import { getRequest } from './routes/get-request.ts'
import { getModel, listModels } from './routes/list-models.ts'
import { v1Headers } from './send.ts'

export type AppServices = ChatRouteServices & {
  readonly database: Database
  readonly prices: PriceList
  readonly inFlightCap: Usdc
  /** What keeps the service from serving, by name; empty when it is ready. */
  readonly notReady: () => Promise<Readonly<Record<string, string>>>
}

/** Everything the service answers. The one hot route is served straight from Node's own objects; the rest goes through Hono. */
export function createApp(services: AppServices): RequestListener {
  const other = getRequestListener(createRoutes(services).fetch, { overrideGlobalObjects: false })
  return (incoming, outgoing) => {
    if (isChatCompletion(incoming)) void createChatCompletion(services, incoming, outgoing)
    else void other(incoming, outgoing)
  }
}

const chatPath = '/v1/chat/completions'

function isChatCompletion({ method, url = '' }: IncomingMessage): boolean {
  return (
    method === 'POST' && url.startsWith(chatPath) && (url.length === chatPath.length || url[chatPath.length] === '?')
  )
}

type Bindings = { Bindings: { incoming: IncomingMessage; outgoing: ServerResponse }; Variables: { requestId: string } }

function createRoutes(services: AppServices): Hono<Bindings> {
  const { database, keys, prices, inFlightCap, publicUrl } = services
  const catalogue = { prices, inFlightCap, publicUrl }
  const app = new Hono<Bindings>()

  app.use(async (context, next) => {
    const requestId = formatRequestId(createRequestId(0, Date.now()))
    context.set('requestId', requestId)
    await next()
    for (const [name, value] of Object.entries(v1Headers(requestId))) context.header(name, value)
  })
  app.options('/v1/*', (context) => {
    context.header('access-control-allow-methods', 'GET, POST, OPTIONS')
    context.header(
      'access-control-allow-headers',
      context.req.header('access-control-request-headers') ?? 'authorization, content-type',
    )
    context.header('access-control-max-age', '86400')
    return context.body(null, 204)
  })

  app.get('/v1/models', (context) => context.json(listModels(catalogue)))
  app.get('/v1/models/:id{.+}', (context) => context.json(getModel(context.req.param('id'), catalogue)))
  app.get('/api/requests/:id', async (context) => {
    const owner = await authenticate(keys, context.req.header('authorization'))
    context.header('cache-control', 'no-store')
    return context.json(await getRequest(database, owner, context.req.param('id')))
  })

  app.get('/healthz', (context) => context.json({ ok: true }))
  app.get('/readyz', async (context) => {
    const problems = await services.notReady()
    const ok = Object.keys(problems).length === 0
    return context.json({ ok, problems }, ok ? 200 : 503)
  })
  app.get('/docs/errors', (context) => context.html(errorsPage()))
  app.get('/', (context) => context.html(homePage(publicUrl)))

  for (const [path, methods] of Object.entries(knownMethods)) {
    app.all(path, (context) => {
      context.header('allow', methods)
      throw new MethodNotAllowedError(context.req.method, methods)
    })
  }
  app.notFound((context) => refuse(new UnknownUrlError(context.req.method, context.req.path), context))
  app.onError((error, context) => {
    if (!(error instanceof ServiceError)) services.onError(error, context.get('requestId'))
    return refuse(error, context)
  })
  return app

  function refuse(error: unknown, context: RefusalContext): Response {
    const response = errorResponse(error, { requestId: context.get('requestId'), publicUrl })
    return context.json(response.body, response.status, { ...response.headers })
  }
}

type RefusalContext = {
  get(name: 'requestId'): string
  json(body: object, status: ContentfulStatusCode, headers: Record<string, string>): Response
}

const knownMethods = {
  [chatPath]: 'POST',
  '/v1/models': 'GET',
  '/v1/models/:id{.+}': 'GET',
  '/api/requests/:id': 'GET',
  '/healthz': 'GET',
  '/readyz': 'GET',
}

export class UnknownUrlError extends ServiceError {
  readonly code = 'unknown_url'
  constructor(method: string, path: string) {
    super(
      notOffered.has(path)
        ? `${path} is not offered: send chat completions to ${chatPath}.${path === '/v1/responses' ? clientHint : ''}`
        : `There is nothing at ${method} ${path.slice(0, 200)}. The base address ends in /v1; chat completions are at ${chatPath}.`,
    )
  }
}

// Some libraries choose the Responses API by the model's name and must be told not to.
const clientHint =
  " LangChain: use ChatOpenAICompletions; AI SDK: openai.chat(model); Agents SDK: setOpenAIAPI('chat_completions')."

const notOffered = new Set(['/v1/embeddings', '/v1/completions', '/v1/responses'])

export class MethodNotAllowedError extends ServiceError {
  readonly code = 'method_not_allowed'
  constructor(method: string, allowed: string) {
    super(`${method} is not answered here; use ${allowed}.`)
  }
}
