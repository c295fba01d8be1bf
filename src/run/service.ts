import type { SandboxReady } from '../../sandbox/start.ts'
import { defaultGrace, type Grace } from '../chat/attempts.ts'
import type { Config } from '../config/config.ts'
import type { Database } from '../db/database.ts'
import { locateEmbeddedPostgres } from '../db/embedded-postgres.ts'
import { drain, portProblem, serveUntilNoticed } from '../http/server.ts'
import { armFailpoint } from '../process/failpoints.ts'
import { createLog } from '../process/log.ts'
import type { SettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import type { WebTools } from '../tools/web-tools.ts'
import { loadCatalog, routingTable } from './catalog.ts'
import { openChainServices } from './chain-services.ts'
import { openControl } from './control.ts'
import { type Databases, openDatabases } from './databases.ts'
import { startAlerts, startAudit, startCleanUp, startWebhooks } from './jobs.ts'
import { openObserver } from './observe.ts'
import { openHolds, openRetries } from './open-holds.ts'
import { startSandbox, startSettlementServices } from './processes.ts'
import type { StartContext } from './start-context.ts'
import { openRouter, openWeb, reloadProviders } from './upstreams.ts'
import { openPort, serveRequests } from './web-node.ts'

export type Service = {
  readonly publicUrl: string
  /** The model for requests that name none. */
  readonly defaultModel: string
  readonly database: Database
  /** Undefined on a machine that does not settle: another machine does. */
  readonly money: SettlementEndpoints | undefined
  /** Resolves with the reason when the service can no longer run. */
  readonly failed: Promise<Error>
  /** Finishes requests in progress, fails those that take too long, and stops everything that was started. */
  stop(): Promise<void>
  /** Ends a stop's wait for requests in progress: they fail, and their clients get an error. */
  hurry(): void
  readonly requestsUnderWay: number
}

export type StartOptions = {
  /** Replaces the configured web tools, for tests, which have no network. */
  readonly web?: WebTools | undefined
  /** How long attempts continue after their client has left; for tests. */
  readonly retryGrace?: Grace | undefined
  /** Cancels the start: everything that was started is stopped. */
  readonly signal?: AbortSignal | undefined
}

/** Builds the service from its configuration. Stops everything in reverse order of its start. */
export async function startService(
  config: Config,
  onProgress: (line: string) => void,
  options: StartOptions = {},
): Promise<Service> {
  const stack = new AsyncDisposableStack()
  try {
    const log = createLog(config.logLevel, config.dataDir)
    stack.defer(() => log.flush())
    return await start({ config, log, stack, onProgress, signal: options.signal }, options)
  } catch (error) {
    await stack.disposeAsync()
    throw error
  }
}

async function start(context: StartContext, { web, retryGrace = defaultGrace }: StartOptions): Promise<Service> {
  const { config, stack, signal } = context
  const catalog = loadCatalog(config)
  const { prices } = catalog
  for (const warning of catalog.warnings) context.onProgress(warning)
  const failure = Promise.withResolvers<Error>()
  const [databases, sandbox] = await startGround(context, () => openDatabases(context, prices, failure.resolve))
  signal?.throwIfAborted()
  const router = openRouter(context, routingTable(config, catalog, sandbox))
  const failpoint = armFailpoint(config.failpoint)
  const observer = openObserver(context)
  const holds = await openHolds(context, { databases, priceVersion: prices.version, failpoint, observer })
  const port = await openPort(context)
  const { publicUrl } = port
  const webTools = web ?? openWeb(context, sandbox, publicUrl)
  const money = await startSettlementServices({ ...context, databases, publicUrl }, sandbox)
  const chainServices = openChainServices({ config, database: databases.jobs, money, stack })
  const retries = openRetries(context, { databases, node: holds.node, grace: retryGrace })
  const parts = {
    prices,
    databases,
    failpoint,
    observer,
    holds,
    router,
    web: webTools,
    retries,
    chainServices,
    money,
    publicUrl,
  }
  const stopping = new AbortController()
  const hurry = new AbortController()
  const load = serveRequests(context, { ...parts, stopping: stopping.signal }, port)
  stack.defer(() => drain(port.server, load, { drainMs: config.drainMs, hurry: hurry.signal }))
  stack.defer(() => port.wasted.stop())
  stack.defer(() => retries.drain())
  await openControl(context, {
    providers: () => router.health,
    reloadProviders: () => reloadProviders(context, router, catalog),
  })
  startAudit(context, databases.jobs, observer.metrics)
  startCleanUp(context, databases.jobs)
  startWebhooks(context, databases, publicUrl, observer.metrics)
  startAlerts(context, databases, publicUrl)
  stack.defer(() => {
    stopping.abort()
    return serveUntilNoticed(port.server, config.shutdownDelayMs, hurry.signal)
  })
  return {
    publicUrl,
    defaultModel: prices.defaultModel,
    database: databases.jobs,
    money,
    failed: failure.promise,
    stop: () => stack.disposeAsync(),
    hurry: () => hurry.abort(),
    get requestsUnderWay() {
      return load.requests
    },
  }
}

/** Starts the database and the sandbox, concurrently if that is safe. */
async function startGround(
  context: StartContext,
  openBooks: () => Promise<Databases>,
): Promise<[Databases, SandboxReady | undefined]> {
  const { config } = context
  const isServed = config.databaseUrl === undefined && (await locateEmbeddedPostgres(config.dataDir)) !== undefined
  // If a service on the same folder uses the port, let the database's lock report that service.
  const problem = isServed ? undefined : await portProblem(config)
  if (problem !== undefined) throw problem
  const databases = openBooks()
  // A database server that is already running may belong to another service: do not touch its sandbox before that is known.
  const sandbox = isServed ? databases.then(() => startSandbox(context)) : startSandbox(context)
  // Wait for both even if one fails: everything that the other has started must be stopped too.
  await Promise.allSettled([databases, sandbox])
  return Promise.all([databases, sandbox])
}
