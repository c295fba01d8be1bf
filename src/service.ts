import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { CancelAllowance } from './billing/cancel-allowance.ts'
import { HiddenReasoning } from './billing/hidden-reasoning.ts'
import { loadPriceList, type PriceList } from './billing/price-list.ts'
import { openChainSide } from './chain-side.ts'
import { defaultGrace, type Grace } from './chat/attempts.ts'
import { Checkpoints } from './chat/checkpoints.ts'
import { OpenRequests } from './chat/open-requests.ts'
import { Retries } from './chat/retries.ts'
import type { Config } from './config.ts'
import { type Database, openDatabase } from './db/database.ts'
import { locateEmbeddedPostgres, startEmbeddedPostgres } from './db/embedded-postgres.ts'
import { migrate } from './db/migrate.ts'
import { embeddedIn, openUsable, outside } from './db/open-usable.ts'
import { armFailpoint, type Failpoint } from './failpoints.ts'
import type { ChainSide } from './http/api/chain-side.ts'
import { createApp } from './http/app.ts'
import { BodyBudget } from './http/body-budget.ts'
import { findProblems } from './http/find-problems.ts'
import { HealthMonitor } from './http/health-monitor.ts'
import { Load } from './http/load.ts'
import { MetricsPage } from './http/metrics-page.ts'
import { Dashboard } from './http/pages/dashboard.ts'
import { errorsMarkdown } from './http/pages/errors.ts'
import { modelsMarkdown } from './http/pages/models.ts'
import { Readiness } from './http/readiness.ts'
import { connectionsMaxFor, drain, listen, openServer, portProblem } from './http/server.ts'
import { siteOf } from './http/site.ts'
import { answerMalformed, answerStarting, answerUnread, BegunAnswers, ExpectationError } from './http/unrouted.ts'
import { KeyFinder } from './identity/api-keys.ts'
import { forgetSignIns } from './identity/sessions.ts'
import { createTokenCounter } from './inference/tokens.ts'
import { createUpstream, type Upstream } from './inference/upstream.ts'
import { Auditor, type AuditScope } from './jobs/audit-ledger.ts'
import { endOrphanedHolds } from './jobs/end-orphaned-holds.ts'
import { every } from './jobs/every.ts'
import { keepLease } from './jobs/keep-lease.ts'
import { setUnsettledCap } from './ledger/accounts.ts'
import type { Violation } from './ledger/audit.ts'
import { Holds, ledgerOperations } from './ledger/holds.ts'
import { readLedgerNumbers } from './ledger/ledger-numbers.ts'
import { recordPrices } from './ledger/prices.ts'
import { forgetReplays } from './ledger/replays.ts'
import { forgetRefusals } from './ledger/requests.ts'
import { createLog, type Log } from './log.ts'
import { Gauge } from './observe/metric.ts'
import { Observer } from './observe/observer.ts'
import { createExporter } from './observe/otlp-exporter.ts'
import { watchProcess } from './observe/process-metrics.ts'
import { createServiceMetrics } from './observe/service-metrics.ts'
import { type ProcessOptions, startMoneyLine, startSandbox } from './processes.ts'
import type { SandboxReady } from './sandbox/start.ts'
import type { MoneyLine } from './settlement/money-line.ts'
import { createWebTools, type WebTools } from './tools/web-tools.ts'

export type Service = {
  readonly publicUrl: string
  /** What is answered with where a request names no model. */
  readonly defaultModel: string
  readonly database: Database
  /** Undefined where nothing is settled: another machine does it. */
  readonly money: MoneyLine | undefined
  /** Resolves with the reason when the service can no longer run. */
  readonly failed: Promise<Error>
  /** Finishes what is under way, fails what takes too long for that, and stops everything that was started. */
  stop(): Promise<void>
  /** Ends a stop's wait for requests under way: they fail, and their clients are told so. */
  hurry(): void
  readonly requestsUnderWay: number
}

const migrationsFolder = fileURLToPath(new URL('../migrations/', import.meta.url))
const dashboardFolder = fileURLToPath(new URL('../web/dist/', import.meta.url))
const documentationFolder = fileURLToPath(new URL('../docs/', import.meta.url))
const openApiFile = fileURLToPath(new URL('../openapi.json', import.meta.url))
const packageFile = new URL('../package.json', import.meta.url)
const packageVersion = (JSON.parse(readFileSync(packageFile, 'utf8')) as { version: string }).version
const bodyReadMsMax = 30_000
// Each kind of work has its own connections, so that none can starve another: holds and ends; what a request needs before its
// hold (its key, its earlier attempts); the dashboard and `/api`; jobs, metrics and health.
const ledgerConnectionsMax = 8
const lookUpConnectionsMax = 4
const apiConnectionsMax = 4
const connectionsMax = 4
const healthSampleMs = 60_000
const lastWritesMsMax = 10_000
const cleanUpMs = 10 * 60_000
/** How soon a retry on another node gets the answer of this one. */
const otherNodesMs = 500
/** Of the answers that are kept for retries, per account. */
const keptAnswerBytesMax = 256 * 1024 * 1024

export type StartOptions = {
  /** Another web than the configured one, for tests, which have no network. */
  readonly web?: WebTools | undefined
  /** How long attempts run on without a client, for tests. */
  readonly retryGrace?: Grace | undefined
  /** Aborted when the service is no longer wanted before it is ready: everything that was started is stopped. */
  readonly signal?: AbortSignal | undefined
}

/**
 * Builds the service from its configuration. Everything is stopped in the opposite order of its start.
 */
export async function startService(
  config: Config,
  onProgress: (line: string) => void,
  { web: givenWeb, retryGrace = defaultGrace, signal }: StartOptions = {},
): Promise<Service> {
  const stack = new AsyncDisposableStack()
  const failure = Promise.withResolvers<Error>()
  const hurry = new AbortController()
  try {
    const prices = loadPriceList(config.modelsFile)
    const log = createLog(config.logLevel, config.dataDir)
    stack.defer(() => log.flush())
    const isServed = config.databaseUrl === undefined && (await locateEmbeddedPostgres(config.dataDir)) !== undefined
    // A port that the service of this very folder has is reported as that service, by the ledger.
    const problem = isServed ? undefined : await portProblem(config)
    if (problem !== undefined) throw problem
    const ledger = openLedger({ config, prices, stack, onProgress, signal }, failure.resolve)
    const openSandbox = () => startSandbox({ config, log, stack, onProgress, signal })
    // Where a server runs already, another service may own the folder: its sandbox must not be touched before that is known.
    const [{ database, url: databaseUrl }, sandbox] = await both(
      ledger,
      isServed ? ledger.then(openSandbox) : openSandbox(),
    )
    signal?.throwIfAborted()
    const upstream = openUpstream(config, sandbox, stack)
    const failpoint = armFailpoint(config.failpoint)
    const observer = startObserver(config, log, stack)
    const ledgerDatabase = openDatabase({
      url: databaseUrl,
      poolMax: ledgerConnectionsMax,
      applicationName: 'penny ledger',
    })
    stack.defer(() => ledgerDatabase.close())
    const lookUps = openDatabase({
      url: databaseUrl,
      poolMax: lookUpConnectionsMax,
      applicationName: 'penny look-ups',
    })
    stack.defer(() => lookUps.close())
    const apiDatabase = openDatabase({ url: databaseUrl, poolMax: apiConnectionsMax, applicationName: 'penny api' })
    stack.defer(() => apiDatabase.close())
    const holds = await openHolds({ config, prices, log, database: ledgerDatabase, failpoint, observer }, stack)
    const server = openServer(config.requestsMax)
    const publicUrl = await listen(server, config)
    const tellStarting = (_incoming: IncomingMessage, outgoing: ServerResponse) => answerStarting(publicUrl, outgoing)
    server.on('request', tellStarting)
    const begun = new BegunAnswers()
    server.on('request', (incoming, outgoing) => begun.watch(incoming, outgoing))
    server.on('clientError', (error, socket) => answerMalformed({ publicUrl, begun }, error, socket))
    server.on('checkExpectation', ({ headers }, outgoing) =>
      answerUnread(new ExpectationError(headers.expect), publicUrl, outgoing),
    )
    // A start that fails from here on must not leave a port open behind which nobody is.
    stack.defer(() => void server.close())
    const web = givenWeb ?? openWeb({ config, log, publicUrl }, sandbox, stack)
    const money = await startMoneyLine(
      { config, database, databaseUrl, publicUrl, log, stack, onProgress, signal },
      sandbox,
    )
    const chainSide = openChainSide({ config, database, money, stack })
    const retries = openRetries({ log, database: lookUps, ledgerDatabase, holds }, retryGrace, stack)
    const parts = {
      config,
      prices,
      log,
      database,
      ledgerDatabase,
      lookUps,
      apiDatabase,
      failpoint,
      observer,
      holds,
      upstream,
      web,
      retries,
      chainSide,
      publicUrl,
    }
    const load = serve(server, parts, stack)
    server.off('request', tellStarting)
    stack.defer(() => drain(server, load, { drainMs: config.drainMs, hurry: hurry.signal }))
    stack.defer(() => retries.drain())
    audit({ config, log, database, observer }, stack)
    cleanUp({ config, log, database }, stack)
    const { defaultModel } = prices
    return {
      publicUrl,
      defaultModel,
      database,
      money,
      failed: failure.promise,
      stop: () => stack.disposeAsync(),
      hurry: () => hurry.abort(),
      get requestsUnderWay() {
        return load.requests
      },
    }
  } catch (error) {
    await stack.disposeAsync()
    throw error
  }
}

/** Waits for both even when one fails: what the other has started by then must be stopped too. */
async function both<First, Second>(first: Promise<First>, second: Promise<Second>): Promise<[First, Second]> {
  await Promise.allSettled([first, second])
  return Promise.all([first, second])
}

type Parts = {
  readonly config: Config
  readonly prices: PriceList
  readonly log: Log
  readonly database: Database
  /** The same one, by connections that only money uses. */
  readonly ledgerDatabase: Database
  /** The same one, for what a request needs before its hold. */
  readonly lookUps: Database
  /** The same one, for the dashboard. */
  readonly apiDatabase: Database
  readonly failpoint: Failpoint
  readonly observer: Observer
  readonly holds: Holds
  readonly upstream: Upstream
  readonly web: WebTools
  readonly retries: Retries
  readonly chainSide: ChainSide
  readonly publicUrl: string
}

/** What counts, logs and traces. Spans are sent only where somebody takes them. */
function startObserver(config: Config, log: Log, stack: AsyncDisposableStack): Observer {
  const metrics = createServiceMetrics()
  const { traces } = config
  const exporter =
    traces &&
    createExporter({
      endpoint: traces.endpoint,
      headers: traces.headers,
      resource: { 'service.name': traces.serviceName, 'service.version': packageVersion },
      onDropped: (count) => metrics.spansDropped.add(count),
    })
  if (exporter !== undefined) stack.defer(() => exporter.stop())
  return new Observer({ metrics, log, exporter, now: () => performance.now() })
}

type LedgerOptions = Pick<ProcessOptions, 'config' | 'stack' | 'onProgress' | 'signal'> & { readonly prices: PriceList }

async function openLedger(
  { config, prices, stack, onProgress, signal }: LedgerOptions,
  onLost: (error: Error) => void,
): Promise<{ readonly database: Database; readonly url: string }> {
  let url = config.databaseUrl
  if (url === undefined) {
    const postgres = await startEmbeddedPostgres({
      dataDir: config.dataDir,
      onProgress,
      signal,
      onLost: (error) => onLost(new Error(`PostgreSQL is lost: ${String(error)}`)),
    })
    stack.defer(() => postgres.stop())
    url = postgres.url
  }
  const options = { url, poolMax: connectionsMax, applicationName: 'penny' }
  const origin = config.databaseUrl === undefined ? embeddedIn(config.dataDir) : outside
  const database = await openUsable(options, origin, async (opened) => {
    signal?.throwIfAborted()
    await migrate(opened, migrationsFolder, onProgress)
    await recordPrices(opened, prices.version, [...prices.models.values()], prices.searchPerCall)
    await setUnsettledCap(opened, config.unsettledCap)
  })
  stack.defer(() => database.close())
  return { database, url }
}

function openUpstream(config: Config, sandbox: SandboxReady | undefined, stack: AsyncDisposableStack): Upstream {
  const { baseUrl, apiKey } = config.upstream ?? { baseUrl: sandbox!.model!.url, apiKey: undefined }
  const upstream = createUpstream({
    baseUrl,
    apiKey,
    timeouts: config.upstreamTimeouts,
    // A request has one of them at a time, so an account's share of the requests is its share of these too.
    connectionsMax: config.requestsMax,
  })
  stack.defer(() => upstream.close())
  return upstream
}

/** What the model can search and read. */
function openWeb(
  { config, log, publicUrl }: Pick<Parts, 'config' | 'log' | 'publicUrl'>,
  sandbox: SandboxReady | undefined,
  stack: AsyncDisposableStack,
): WebTools {
  const tools = createWebTools({
    config,
    sandboxSearchUrl: sandbox?.search?.url,
    publicUrl,
    version: packageVersion,
    onProviderFailure: (error) => log.warn({ err: error }, 'a search provider failed'),
  })
  stack.defer(() => tools.close())
  return tools
}

/** The ledger's writer, on a lease of its own, and the job that ends what dead nodes have left. */
async function openHolds(
  {
    config,
    prices,
    log,
    database,
    failpoint,
    observer,
  }: Omit<
    Parts,
    'ledgerDatabase' | 'lookUps' | 'apiDatabase' | 'holds' | 'upstream' | 'web' | 'retries' | 'chainSide' | 'publicUrl'
  >,
  stack: AsyncDisposableStack,
): Promise<Holds> {
  const node = randomUUID()
  const lease = await keepLease({
    database,
    node,
    leaseMs: config.leaseMs,
    dataDir: config.dataDir,
    onLapsed: () =>
      log.error({ node }, 'the lease ran out before it was renewed: others may have ended requests of this node'),
    onError: (error) => log.error({ err: error, node }, 'the lease could not be renewed'),
  })
  stack.defer(() =>
    lease.end().catch((error: unknown) => log.warn({ err: error }, 'the lease could not be given back')),
  )
  const holds = new Holds({
    database,
    node,
    priceVersion: prices.version,
    inFlightCap: config.inFlightCap,
    onLost: (error) => log.warn({ err: error }, 'a note to the ledger was lost'),
    failpoint,
    onBatch: (operation, size, ms) => {
      observer.metrics.batchSize.observe(size, operation)
      observer.metrics.batchSeconds.observe(ms / 1000, operation)
    },
  })
  stack.defer(() => finishWrites(holds))
  const orphans = every(
    Math.ceil(config.leaseMs / 2),
    () => endOrphanedHolds(database, holds),
    (error) => log.error({ err: error }, 'orphaned holds could not be ended'),
  )
  stack.defer(() => orphans.stop())
  await orphans.now()
  return holds
}

/**
 * Looks over the accounts in use all the time. All of them, now and then, only where payments are settled: one look is enough for all
 * nodes, and it holds the database back from clearing up behind itself.
 */
function audit(
  { config, log, database, observer }: Pick<Parts, 'config' | 'log' | 'database' | 'observer'>,
  stack: AsyncDisposableStack,
): void {
  const { metrics } = observer
  const auditor = new Auditor({
    database,
    recentSeconds: Math.ceil((5 * config.auditMs) / 1000),
    onViolations: (violations: readonly Violation[]) =>
      log.error({ violations }, 'the books are wrong: the ledger is frozen'),
    onAudited: (scope: AuditScope, imbalance: bigint, violations: number) => {
      metrics.imbalance.set(Number(imbalance), scope)
      metrics.violations.set(violations, scope)
      metrics.auditedAt.set(Date.now() / 1000, scope)
    },
  })
  const onError = (error: unknown) => log.error({ err: error }, 'the books could not be audited')
  const recent = every(config.auditMs, () => auditor.audit('recent'), onError)
  stack.defer(() => recent.stop())
  if (config.roles.includes('jobs')) {
    const all = every(config.fullAuditMs, () => auditor.audit('all'), onError)
    stack.defer(() => all.stop())
  }
  // Not only after the first minute is it known whether the books are right.
  void recent.now()
}

/** Answers that were kept for replays are deleted after a day; what was for signing in, when its time is over; old refusals. */
function cleanUp(
  { config, log, database }: Pick<Parts, 'config' | 'log' | 'database'>,
  stack: AsyncDisposableStack,
): void {
  const job = every(
    cleanUpMs,
    async () => {
      await forgetReplays(database, config.replayHours, keptAnswerBytesMax)
      await forgetSignIns(database)
      await forgetRefusals(database, config.refusedDays)
    },
    (error) => log.error({ err: error }, 'what is old could not be deleted'),
  )
  stack.defer(() => job.stop())
}

/** Answers that retries on other nodes wait for are given to them twice a second. */
function openRetries(
  { log, database, ledgerDatabase, holds }: Pick<Parts, 'log' | 'database' | 'ledgerDatabase' | 'holds'>,
  grace: Grace,
  stack: AsyncDisposableStack,
): Retries {
  const now = () => performance.now()
  const retries = new Retries({ database, ledger: ledgerDatabase, node: holds.node, grace, now })
  const job = every(
    otherNodesMs,
    () => retries.serveOtherNodes(),
    (error) => log.warn({ err: error }, 'answers for retries on other nodes could not be written'),
  )
  stack.defer(() => job.stop())
  return retries
}

/** Waits for the last writes; a database that is away is not waited for: the next node ends what is left. */
async function finishWrites(holds: Holds): Promise<void> {
  await Promise.race([holds.drained(), sleep(lastWritesMsMax, undefined, { ref: false })])
  holds.stop()
}

/** Wires the parts together behind the server. */
function serve(server: Server, parts: Parts, stack: AsyncDisposableStack): Load {
  const { config, prices, log, lookUps, failpoint, observer, holds, upstream, web, publicUrl } = parts
  const now = () => performance.now()
  const counter = createTokenCounter()
  stack.defer(() => counter.close())
  const load = new Load(config.requestsMax)
  const countTokens = (texts: readonly string[]) => counter.countPaid(texts)
  counter.warm()
  const hiddenReasoning = new HiddenReasoning()
  const openRequests = new OpenRequests(now)
  const checkpoints = new Checkpoints({
    holds,
    everyMs: config.checkpointMs,
    onError: (error) => log.warn({ err: error }, 'open streams could not be checkpointed'),
  })
  stack.defer(() => checkpoints.stop())
  server.on(
    'request',
    createApp({
      database: parts.apiDatabase,
      lookUps,
      prices,
      publicUrl,
      site: siteOf(publicUrl),
      chainSide: parts.chainSide,
      dashboard: Dashboard.load(dashboardFolder),
      docs: {
        folder: documentationFolder,
        generated: { 'errors.md': errorsMarkdown(), 'models.md': modelsMarkdown(prices) },
      },
      openApi: readFileSync(openApiFile, 'utf8'),
      ledgerPartitions: config.ledgerPartitions,
      unsettledCap: config.unsettledCap,
      trustProxy: config.trustProxy,
      log,
      now,
      inFlightCap: config.inFlightCap,
      metricsPage: openMetricsPage(parts, load, stack),
      keys: new KeyFinder({ database: lookUps, now }),
      holds,
      load,
      failpoint,
      models: {
        defaultModel: prices.defaultModel,
        ids: [...prices.models.keys()],
        maxOutputTokens: (id) => prices.models.get(id)?.maxOutputTokens,
      },
      admission: {
        web,
        holds,
        database: parts.ledgerDatabase,
        prices,
        inFlightCap: config.inFlightCap,
        openRequests,
        countTokens: (texts, options) => counter.count(texts, options),
        failpoint,
      },
      retries: parts.retries,
      serving: {
        upstream,
        holds,
        web,
        onToolFault: (error, { requestId }) => log.error({ fault: error, request_id: requestId }, 'a tool failed'),
        checkpoints,
        counting: { countTokens: (texts) => counter.countOpen(texts), hiddenReasoning },
        observer,
        openRequests,
        now,
        failpoint,
        charging: {
          countTokens,
          hiddenReasoning,
          cancelAllowance: new CancelAllowance(now),
          onUncounted: (error, hold) =>
            log.error({ err: error, request_id: hold.requestId }, 'an answer could not be counted and was not charged'),
          onRefusedUsage: (usage, hold) =>
            log.error({ usage, request_id: hold.requestId }, 'the upstream reported usage that cannot be true'),
        },
      },
      bodyLimits: { bytesMax: config.bodyBytesMax, readMsMax: bodyReadMsMax, budget: openBudget(config) },
      answering: {
        streamKeepaliveMs: config.streamKeepaliveMs,
        keepaliveAfterMs: config.keepaliveAfterMs,
        blockedMsMax: config.blockedMsMax,
      },
      onError: (error, requestId) => log.error({ err: error, request_id: requestId }, 'a request failed'),
      ...watchHealth(parts, stack),
    }),
  )
  return load
}

/** What `/readyz` and the status page say. */
function watchHealth({ database, log, observer, web, chainSide }: Parts, stack: AsyncDisposableStack) {
  const readiness = new Readiness({
    look: () => findProblems(database, migrationsFolder),
    onError: (error) => log.error({ err: error }, 'the database does not answer'),
    now: () => performance.now(),
  })
  const standings = () => ({
    model: observer.model.standing,
    search: web.search === undefined ? ('off' as const) : observer.search.standing,
  })
  const health = new HealthMonitor({ readiness, standings, solvency: chainSide.solvency, clock: Date.now })
  const job = every(
    healthSampleMs,
    () => health.sample(),
    (error) => log.warn({ err: error }, 'health could not be sampled'),
  )
  stack.defer(() => job.stop())
  void job.now()
  return { readiness, standings, health }
}

/** One body of the largest size always fits. */
function openBudget({ bodiesBytesMax, bodyBytesMax, requestsMax }: Config): BodyBudget {
  return new BodyBudget({
    bytesMax: Math.max(bodiesBytesMax, bodyBytesMax),
    accountBytesMin: bodyBytesMax,
    bodiesMax: connectionsMaxFor(requestsMax),
  })
}

/** What this process counts, and what it reads when it is asked. */
function openMetricsPage(parts: Parts, load: Load, stack: AsyncDisposableStack): MetricsPage {
  const { config, database, holds, log, observer } = parts
  const own = watchProcess(packageVersion)
  stack.defer(() => own.stop())
  return new MetricsPage({
    metrics: [...Object.values(observer.metrics), ...loadGauges(load, holds), ...own.metrics],
    readNumbers: () => readLedgerNumbers(database),
    onReadError: (error) => {
      observer.metrics.readErrors.add(1)
      log.warn({ err: error }, 'the numbers of the ledger could not be read')
    },
    token: config.metricsToken,
    now: () => performance.now(),
  })
}

function loadGauges(load: Load, holds: Holds): readonly Gauge[] {
  const inFlight = new Gauge({
    name: 'penny_in_flight_requests',
    help: 'Requests that this process is serving.',
    read: (gauge) => gauge.set(load.requests),
  })
  const queued = new Gauge({
    name: 'penny_ledger_queue_depth',
    help: 'Calls that wait for their batch.',
    labels: ['operation'],
    read: (gauge) => {
      for (const operation of ledgerOperations) gauge.set(holds.queued(operation), operation)
    },
  })
  return [inFlight, queued]
}
