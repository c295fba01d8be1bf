import { readFileSync } from 'node:fs'
import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import type { ChainServices } from '../api/chain-services.ts'
import type { HiddenReasoning } from '../billing/hidden-reasoning.ts'
import type { PriceList } from '../billing/price-list.ts'
import type { AdmissionParts } from '../chat/admit.ts'
import type { ServingParts } from '../chat/answer.ts'
import { Checkpoints } from '../chat/checkpoints.ts'
import { OpenRequests } from '../chat/open-requests.ts'
import type { Retries } from '../chat/retries.ts'
import { allowsLoopbackWebhooks, type Config } from '../config/config.ts'
import { ServiceError } from '../errors.ts'
import { BodyBudget } from '../http/body-budget.ts'
import { Load } from '../http/load.ts'
import type { MetricsPage, SharedPort } from '../http/metrics-page.ts'
import { siteOf } from '../http/origin.ts'
import { connectionsMaxFor, listen, openServer } from '../http/server.ts'
import { UnidentifiedCalls } from '../http/unidentified-calls.ts'
import { UnpaidRequests } from '../http/unpaid-requests.ts'
import { UnreadBodies } from '../http/unread-bodies.ts'
import { answerConnect, answerMalformed, answerStarting, answerUnread, BegunAnswers } from '../http/unrouted.ts'
import { WastedConnections } from '../http/wasted-connections.ts'
import { KeyFinder } from '../identity/key-finder.ts'
import { readOperators } from '../identity/operators.ts'
import { createTokenCounter, type TokenCounter } from '../inference/tokens.ts'
import { findAccount } from '../ledger/accounts.ts'
import type { Holds } from '../ledger/holds.ts'
import type { Observer } from '../observe/observer.ts'
import type { Failpoint } from '../process/failpoints.ts'
import type { Router } from '../providers/router.ts'
import type { SettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import { Dashboard } from '../site/pages/dashboard.ts'
import { errorsMarkdown } from '../site/pages/errors.ts'
import { modelsMarkdown } from '../site/pages/models.ts'
import type { WebTools } from '../tools/web-tools.ts'
import { type AppServices, createApp, createOperatorApi } from './app.ts'
import type { Databases } from './databases.ts'
import { openMetricsPage, watchHealth } from './observe.ts'
import { openX402 } from './open-x402.ts'
import type { StartContext } from './start-context.ts'

const dashboardFolder = fileURLToPath(new URL('../../web/dist/', import.meta.url))
const documentationFolder = fileURLToPath(new URL('../../docs/', import.meta.url))
const openApiFile = fileURLToPath(new URL('../../openapi.json', import.meta.url))
const bodyReadMsMax = 30_000
/** Loading the vocabulary takes a third of a second of a core, and would delay the start. The first count loads it earlier. */
const warmMs = 3_000
const now = () => performance.now()

/** The parts of a node that serves requests. */
export type NodeParts = {
  readonly prices: PriceList
  readonly databases: Databases
  readonly failpoint: Failpoint
  readonly observer: Observer
  readonly holds: Holds
  readonly router: Router
  readonly web: WebTools
  readonly retries: Retries
  readonly hiddenReasoning: HiddenReasoning
  readonly chainServices: ChainServices
  /** Undefined where nothing is settled. */
  readonly money: SettlementEndpoints | undefined
  readonly publicUrl: string
  /** Undefined where one process serves all requests. */
  readonly sharedPort: SharedPort | undefined
  /** Undefined: the clock of this process. */
  readonly ratesNow: (() => number) | undefined
  /** Aborted when this process is about to stop: load balancers then send requests elsewhere. */
  readonly stopping: AbortSignal
}

export type OpenedServer = {
  readonly publicUrl: string
  readonly port: number
  readonly server: Server
  readonly wasted: WastedConnections
  /** Requests wait until this is called: a load balancer without health checks sends them as soon as the port is open. */
  serve(app: ReturnType<typeof createApp>): void
}

/** A request that the start keeps waiting for longer is refused: its client, or a load balancer, may try another machine. */
const startWaitMsMax = 10_000

/** Binds the port before the slower parts of a start. */
export async function openPort({ config, stack }: StartContext): Promise<OpenedServer> {
  const server = openServer(config.requestsMax)
  const wasted = new WastedConnections({ now })
  if (!config.trustProxy) wasted.guard(server)
  const publicUrl = await listen(server, config)
  const early = new Map<ServerResponse, IncomingMessage>()
  const wait = (incoming: IncomingMessage, outgoing: ServerResponse) => {
    const isProbe = incoming.url === '/readyz' || incoming.url === '/healthz'
    if (isProbe || early.size >= config.requestsMax) return answerStarting(publicUrl, outgoing)
    early.set(outgoing, incoming)
    const timer = setTimeout(() => early.delete(outgoing) && answerStarting(publicUrl, outgoing), startWaitMsMax)
    outgoing.once('close', () => {
      clearTimeout(timer)
      early.delete(outgoing)
    })
  }
  server.on('request', wait)
  const begun = new BegunAnswers()
  server.on('request', (incoming, outgoing) => begun.watch(incoming, outgoing))
  server.on('clientError', (error, socket) => answerMalformed({ publicUrl, begun }, error, socket))
  server.on('connect', (_incoming, socket) => answerConnect({ publicUrl, begun }, socket))
  server.on('checkExpectation', ({ headers }, outgoing) =>
    answerUnread(
      new ServiceError(
        'invalid_value',
        `The Expect header is ${JSON.stringify(headers.expect?.slice(0, 100))}; only "100-continue" is supported. Leave it out.`,
      ),
      publicUrl,
      outgoing,
    ),
  )
  // A start that fails after this point closes the port and answers the requests that wait.
  stack.defer(() => {
    for (const outgoing of early.keys()) answerStarting(publicUrl, outgoing)
    early.clear()
    server.close()
  })
  return {
    publicUrl,
    port: (server.address() as AddressInfo).port,
    server,
    wasted,
    serve(app) {
      server.on('request', app)
      server.off('request', wait)
      const waiting = [...early]
      early.clear()
      for (const [outgoing, incoming] of waiting) app(incoming, outgoing)
    },
  }
}

/** Connects the parts to the server. */
export function serveRequests(
  context: StartContext,
  parts: NodeParts,
  { serve, wasted }: OpenedServer,
): { readonly load: Load; readonly metricsPage: MetricsPage; readonly operatorApi: RequestListener } {
  const { config, stack } = context
  const counter = createTokenCounter()
  stack.defer(() => counter.close())
  setTimeout(() => counter.warm(), warmMs).unref()
  const load = new Load(config.requestsMax)
  const openRequests = new OpenRequests(now)
  const chat = {
    admission: admissionParts(config, parts, { counter, openRequests }),
    serving: servingParts(context, parts, { counter, openRequests }),
  }
  const metricsPage = openMetricsPage(context, parts, load)
  const health = watchHealth(context, parts)
  const services = { ...appServices(context, parts, wasted), ...chat, ...health, load, metricsPage }
  serve(createApp(services))
  return { load, metricsPage, operatorApi: createOperatorApi(services) }
}

/** Shared by admission and serving of requests. */
type SharedByRequests = { readonly counter: TokenCounter; readonly openRequests: OpenRequests }

function admissionParts(
  config: Config,
  { databases, prices, router, holds, web, failpoint }: NodeParts,
  { counter, openRequests }: SharedByRequests,
): AdmissionParts {
  return {
    web,
    router,
    holds,
    database: databases.ledger,
    prices,
    inFlightCap: config.inFlightCap,
    openRequests,
    countTokens: (texts, options) => counter.count(texts, options),
    failpoint,
  }
}

function servingParts(
  { config, log, stack }: StartContext,
  { router, holds, web, observer, hiddenReasoning, failpoint }: NodeParts,
  { counter, openRequests }: SharedByRequests,
): ServingParts {
  const checkpoints = new Checkpoints({
    holds,
    everyMs: config.checkpointMs,
    onError: (error) => log.warn({ err: error }, 'open answers could not be checkpointed'),
  })
  stack.defer(() => checkpoints.stop())
  const charging: ServingParts['charging'] = {
    countTokens: (texts, account) => counter.countPaid(texts, account),
    hiddenReasoning,
    onUncounted: (error, hold) =>
      log.error({ err: error, request_id: hold.requestId }, 'an answer could not be counted and was not charged'),
    onRefusedUsage: (usage, hold) =>
      log.error({ usage, request_id: hold.requestId }, 'the upstream reported implausible usage'),
  }
  return {
    router,
    holds,
    web,
    onToolFault: (error, { requestId }) => log.error({ fault: error, request_id: requestId }, 'a tool failed'),
    checkpoints,
    counting: { countTokens: (texts, account) => counter.countOpen(texts, account), hiddenReasoning },
    observer,
    openRequests,
    now,
    failpoint,
    charging,
  }
}

type BuiltApart = 'admission' | 'serving' | 'load' | 'metricsPage' | 'readiness' | 'standings' | 'health'

function appServices(
  context: StartContext,
  parts: NodeParts,
  wasted: WastedConnections,
): Omit<AppServices, BuiltApart> {
  const { config, log } = context
  const { databases, prices, publicUrl, chainServices, holds, retries, router, failpoint, stopping } = parts
  return {
    database: databases.api,
    operatorDatabase: databases.operator,
    lookUps: databases.lookUps,
    operators: readOperators(config.operators),
    prices,
    publicUrl,
    site: siteOf(publicUrl),
    chainServices,
    x402: openX402(context, parts),
    providers: () => router.health,
    ...documents(prices),
    ledgerPartitions: config.ledgerPartitions,
    unsettledCap: config.unsettledCap,
    withdrawalMin: config.withdrawalMin,
    allowsLoopbackWebhooks: allowsLoopbackWebhooks(config),
    sendsMail: config.mail !== undefined,
    inFlightCap: config.inFlightCap,
    trustProxy: config.trustProxy,
    log,
    now,
    keys: new KeyFinder({ database: databases.lookUps, now }),
    holds,
    retries,
    unpaid: new UnpaidRequests({
      now: parts.ratesNow ?? now,
      onPaid: (socket) => wasted.paid(socket),
      findAccount: ({ partition, accountId }) => findAccount(databases.lookUps, partition, accountId),
    }),
    unreadBodies: new UnreadBodies({ now }),
    unidentified: new UnidentifiedCalls({ trustProxy: config.trustProxy, now }),
    failpoint,
    stopping,
    models: {
      defaultModel: prices.defaultModel,
      ids: [...prices.models.keys()],
      maxOutputTokens: (id) => prices.models.get(id)?.maxOutputTokens,
    },
    bodyLimits: { bytesMax: config.bodyBytesMax, readMsMax: bodyReadMsMax, budget: openBudget(config) },
    answering: {
      streamKeepaliveMs: config.streamKeepaliveMs,
      keepaliveAfterMs: config.keepaliveAfterMs,
      blockedMsMax: config.blockedMsMax,
    },
    onError: (error, requestId) => log.error({ err: error, request_id: requestId }, 'a request failed'),
  }
}

function documents(prices: PriceList): Pick<AppServices, 'dashboard' | 'docs' | 'openApi'> {
  return {
    dashboard: Dashboard.load(dashboardFolder),
    docs: {
      folder: documentationFolder,
      generated: { 'errors.md': errorsMarkdown(), 'models.md': modelsMarkdown(prices) },
    },
    openApi: readFileSync(openApiFile, 'utf8'),
  }
}

/** The budget always has room for one body of the largest size. */
function openBudget({ bodiesBytesMax, bodyBytesMax, requestsMax }: Config): BodyBudget {
  return new BodyBudget({
    bytesMax: Math.max(bodiesBytesMax, bodyBytesMax),
    accountBytesMin: bodyBytesMax,
    bodiesMax: connectionsMaxFor(requestsMax),
  })
}
