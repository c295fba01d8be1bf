import type { SandboxReady } from '../../sandbox/start.ts'
import { defaultGrace, type Grace } from '../chat/answers.ts'
import type { Config } from '../config/config.ts'
import type { Database } from '../db/database.ts'
import { locateEmbeddedPostgres } from '../db/embedded-postgres.ts'
import { portProblem } from '../http/server.ts'
import { createLog } from '../process/log.ts'
import type { SettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import type { WebTools } from '../tools/web-tools.ts'
import { loadCatalog } from './catalog.ts'
import { openControl, publishControl } from './control.ts'
import { type Databases, openDatabases } from './databases.ts'
import { startAlerts, startAudit, startCleanUp, startWebhooks } from './jobs.ts'
import { openNode, type ServingNode, serveNode } from './open-node.ts'
import { refuseMissingSandboxChain, startSandbox, startSettlementServices } from './processes.ts'
import type { StartContext } from './start-context.ts'
import { type OpenedServer, openPort } from './web-node.ts'
import { joinHealth, WebProcesses, type WebSettings } from './web-processes.ts'

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
  /** Requests in progress. */
  countRequests(): Promise<number>
}

export type StartOptions = {
  /** Replaces the configured web tools, for tests, which have no network. */
  readonly web?: WebTools | undefined
  /** How long attempts continue after their client has left; for tests. */
  readonly retryGrace?: Grace | undefined
  /** The clock of the rates of unpaid requests, in milliseconds; for tests. */
  readonly ratesNow?: (() => number) | undefined
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
    const log = createLog(config.logLevel)
    stack.defer(() => log.flush())
    return await start({ config, log, stack, onProgress, signal: options.signal }, options)
  } catch (error) {
    await stack.disposeAsync()
    throw error
  }
}

async function start(context: StartContext, options: StartOptions): Promise<Service> {
  const { web, retryGrace = defaultGrace, ratesNow } = options
  const { config, stack, signal } = context
  const catalog = loadCatalog(config)
  // Before the database: a refused start must not leave one behind.
  refuseMissingSandboxChain(config)
  for (const warning of catalog.warnings) context.onProgress(warning)
  const failure = Promise.withResolvers<Error>()
  const [databases, sandbox] = await startGround(context, () => openDatabases(context, catalog.prices, failure.resolve))
  signal?.throwIfAborted()
  const port = await openPort(context)
  const { publicUrl } = port
  const money = await startSettlementServices({ ...context, databases, publicUrl }, sandbox)
  const live = { current: catalog }
  const others = await startOthers(
    context,
    () => ({ databaseUrl: databases.url, sandbox, money, publicUrl, catalog: live.current }),
    port,
  )
  const sharedPort = config.webProcesses > 1 ? { processNumber: 1, samplesOfAll: () => actions.samples() } : undefined
  const ground = { catalog, databases, sandbox, money, publicUrl, sharedPort }
  const parts = await openNode(context, ground, { web, retryGrace, ratesNow })
  const { metrics } = parts.observer
  // Before the node serves, so that they are stopped after it: a busy job must not keep requests from being finished.
  startAudit(context, databases.jobs, metrics)
  startCleanUp(context, databases.jobs)
  startWebhooks(context, databases, publicUrl, metrics)
  startAlerts(context, databases, publicUrl)
  const node = serveNode(context, parts, port, live)
  const actions = actionsOfAll(node, others)
  publishControl(context, { ...(await openControl(context, actions, node.operatorApi)), publicUrl })
  stack.defer(() => {
    others.stop()
    return node.announceStop()
  })
  return {
    publicUrl,
    defaultModel: catalog.prices.defaultModel,
    database: databases.jobs,
    money,
    failed: failure.promise,
    stop: () => stack.disposeAsync(),
    hurry: actions.hurry,
    countRequests: actions.requests,
  }
}

/** Starts the other web processes of this machine. Secrets that they do not need are not passed on. */
function startOthers(
  context: StartContext,
  ground: () => Omit<WebSettings, 'config' | 'processNumber'>,
  { port, publicUrl }: OpenedServer,
): Promise<WebProcesses> {
  const config = { ...context.config, port, publicUrl, masterKey: undefined, mail: undefined, failpoint: undefined }
  return WebProcesses.start(context, () => ({ ...ground(), config }))
}

/** Control actions of all web processes of this machine together. */
function actionsOfAll({ actions: own }: ServingNode, others: WebProcesses) {
  return {
    async providers() {
      const answers = await others.ask('GET', '/providers')
      return joinHealth([await own.providers(), ...answers.map(({ providers }) => providers)])
    },
    /** Reloads here first: a mistake in the file is found before another process uses it. */
    async reloadProviders() {
      const warnings = await own.reloadProviders()
      await others.ask('POST', '/providers/reload')
      return warnings
    },
    async samples() {
      const answers = await others.ask('GET', '/metrics')
      return [...(await own.samples()), ...answers.flatMap(({ samples }) => samples)]
    },
    async requests() {
      const ownRequests = await own.requests()
      const answers = await others.ask('GET', '/requests')
      return answers.reduce((sum, { requests }) => sum + requests, ownRequests)
    },
    hurry() {
      own.hurry()
      void others.ask('POST', '/hurry')
    },
  }
}

/** Starts the database and the sandbox, concurrently if that is safe. */
async function startGround(
  context: StartContext,
  startDatabase: () => Promise<Databases>,
): Promise<[Databases, SandboxReady | undefined]> {
  const { config } = context
  const isServed = config.databaseUrl === undefined && (await locateEmbeddedPostgres(config.dataDir)) !== undefined
  // If a service on the same folder uses the port, let the database's lock report that service.
  const problem = isServed ? undefined : await portProblem(config)
  if (problem !== undefined) throw problem
  const databases = startDatabase()
  // A database server that is already running may belong to another service: do not touch its sandbox before that is known.
  const sandbox = isServed ? databases.then(() => startSandbox(context)) : startSandbox(context)
  // Wait for both even if one fails: everything that the other has started must be stopped too.
  await Promise.allSettled([databases, sandbox])
  return Promise.all([databases, sandbox])
}
