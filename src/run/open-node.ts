import type { RequestListener } from 'node:http'
import type { SandboxReady } from '../../sandbox/start.ts'
import { HiddenReasoning, samplesMax } from '../billing/hidden-reasoning.ts'
import type { Grace } from '../chat/answers.ts'
import type { SharedPort } from '../http/metrics-page.ts'
import { drain, serveUntilNoticed } from '../http/server.ts'
import { addReasoningSample, readReasoningSamples } from '../ledger/reasoning-samples.ts'
import { armFailpoint } from '../process/failpoints.ts'
import type { SettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import type { WebTools } from '../tools/web-tools.ts'
import { type Catalog, type LiveCatalog, routingTable } from './catalog.ts'
import { openChainServices } from './chain-services.ts'
import type { ControlActions } from './control.ts'
import type { Databases } from './databases.ts'
import { openObserver } from './observe.ts'
import { openHolds, openRetries } from './open-holds.ts'
import type { StartContext } from './start-context.ts'
import { openRouter, openWeb, reloadProviders } from './upstreams.ts'
import { type NodeParts, type OpenedServer, serveRequests } from './web-node.ts'

/** What must be running before a process can serve requests. */
export type Ground = {
  readonly catalog: Catalog
  readonly databases: Databases
  readonly sandbox: SandboxReady | undefined
  /** Undefined on a machine that does not settle: another machine does. */
  readonly money: SettlementEndpoints | undefined
  readonly publicUrl: string
  /** Undefined where one process serves all requests. */
  readonly sharedPort: SharedPort | undefined
}

export type NodeOptions = {
  /** Replaces the configured web tools, for tests, which have no network. */
  readonly web?: WebTools | undefined
  /** How long attempts continue after their client has left. */
  readonly retryGrace: Grace
  /** The clock of the rates of unpaid requests, in milliseconds; for tests. */
  readonly ratesNow?: (() => number) | undefined
}

/** Opens everything that a process needs to serve requests, except its port. */
export async function openNode(
  context: StartContext,
  ground: Ground,
  { web, retryGrace, ratesNow }: NodeOptions,
): Promise<Omit<NodeParts, 'stopping'>> {
  const { config, stack } = context
  const { catalog, databases, sandbox, money, publicUrl, sharedPort } = ground
  const { prices } = catalog
  const router = openRouter(context, routingTable(config, catalog, sandbox))
  const failpoint = armFailpoint(config.failpoint)
  const observer = openObserver(context)
  const holds = await openHolds(context, { databases, priceVersion: prices.version, failpoint, observer })
  return {
    prices,
    databases,
    failpoint,
    observer,
    holds,
    router,
    web: web ?? openWeb(context, sandbox, publicUrl),
    retries: openRetries(context, { databases, node: holds.node, grace: retryGrace }),
    hiddenReasoning: await openHiddenReasoning(context, databases),
    chainServices: openChainServices({ config, database: databases.jobs, money, stack }),
    money,
    publicUrl,
    sharedPort,
    ratesNow,
  }
}

/** Often enough that a process soon bills by what another one has learned. */
const reloadMs = 30_000

async function openHiddenReasoning({ log, stack }: StartContext, { jobs }: Databases): Promise<HiddenReasoning> {
  const hiddenReasoning = new HiddenReasoning(() => performance.now(), {
    read: () => readReasoningSamples(jobs),
    add: (source, value) => addReasoningSample(jobs, source, value, samplesMax),
    onError: (error) => log.warn({ err: error }, 'a sample of hidden reasoning could not be stored'),
  })
  const load = () =>
    hiddenReasoning
      .load()
      .catch((error: unknown) => log.warn({ err: error }, 'the samples of hidden reasoning could not be read'))
  await load()
  const timer = setInterval(load, reloadMs).unref()
  stack.defer(() => clearInterval(timer))
  return hiddenReasoning
}

export type ServingNode = {
  /** Control actions of this process only. */
  readonly actions: ControlActions
  /** `/api` for the operator's commands. */
  readonly operatorApi: RequestListener
  /** Tells load balancers and clients that this process is about to stop, and keeps serving for a while. */
  announceStop(): Promise<void>
}

/** Serves requests until the context's stack is disposed, which waits for requests in progress. */
export function serveNode(
  context: StartContext,
  parts: Omit<NodeParts, 'stopping'>,
  port: OpenedServer,
  catalog: LiveCatalog,
): ServingNode {
  const { config, stack } = context
  const { router, retries } = parts
  const stopping = new AbortController()
  const hurry = new AbortController()
  const { load, metricsPage, operatorApi } = serveRequests(context, { ...parts, stopping: stopping.signal }, port)
  stack.defer(() => drain(port.server, load, { drainMs: config.drainMs, hurry: hurry.signal }))
  stack.defer(() => port.wasted.stop())
  stack.defer(() => retries.drain())
  return {
    actions: {
      providers: () => router.health,
      reloadProviders: () => reloadProviders(context, router, catalog),
      samples: () => [metricsPage.samples()],
      requests: () => load.requests,
      hurry: () => hurry.abort(),
    },
    operatorApi,
    announceStop() {
      stopping.abort()
      return serveUntilNoticed(port.server, config.shutdownDelayMs, hurry.signal)
    },
  }
}
