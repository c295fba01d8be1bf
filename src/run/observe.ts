import { migrationsFolder } from '../db/migrate.ts'
import { findProblems, HealthMonitor, Readiness } from '../http/health.ts'
import type { Load } from '../http/load.ts'
import { MetricsPage } from '../http/metrics-page.ts'
import { every } from '../jobs/every.ts'
import { type Holds, ledgerOperations } from '../ledger/holds.ts'
import { readLedgerNumbers } from '../ledger/ledger-numbers.ts'
import { Gauge } from '../observe/metric.ts'
import { Observer } from '../observe/observer.ts'
import { createExporter } from '../observe/otlp-exporter.ts'
import { watchProcess } from '../observe/process-metrics.ts'
import { createServiceMetrics } from '../observe/service-metrics.ts'
import { packageVersion } from '../process/package-version.ts'
import type { ProviderHealth } from '../providers/provider.ts'
import type { Router } from '../providers/router.ts'
import type { StartContext } from './start-context.ts'
import type { NodeParts } from './web-node.ts'

const healthSampleMs = 60_000

/** Opens counting, logging and tracing. Spans are sent only if an endpoint is configured. */
export function openObserver({ config, log, stack }: StartContext): Observer {
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

/** The data of `/readyz` and the status page. */
export function watchHealth({ log, stack }: StartContext, { databases, observer, web, chainServices }: NodeParts) {
  const readiness = new Readiness({
    look: () => findProblems(databases.jobs, migrationsFolder),
    onError: (error) => log.error({ err: error }, 'the database does not answer'),
    now: () => performance.now(),
  })
  const standings = () => ({
    model: observer.model.standing,
    search: web.search === undefined ? ('off' as const) : observer.search.standing,
  })
  const health = new HealthMonitor({ readiness, standings, solvency: chainServices.solvency, clock: Date.now })
  const job = every(
    healthSampleMs,
    () => health.sample(),
    (error) => log.warn({ err: error }, 'health could not be sampled'),
  )
  stack.defer(() => job.stop())
  void job.now()
  return { readiness, standings, health }
}

/** The metrics page: counters of this process, and values that it reads from the database. */
export function openMetricsPage(
  { config, log, stack }: StartContext,
  { databases, holds, observer, router, sharedPort }: NodeParts,
  load: Load,
): MetricsPage {
  const own = watchProcess(packageVersion)
  stack.defer(() => own.stop())
  // Customers must not learn which providers we use, and without a token they can read the page.
  const namesProviders = config.providersFile === undefined || config.metricsToken !== undefined
  return new MetricsPage({
    metrics: [
      ...Object.values(observer.metrics).filter((metric) => namesProviders || !metric.labels.includes('provider')),
      ...loadGauges(load, holds),
      ...(namesProviders ? providerGauges(router) : []),
      ...own.metrics,
    ],
    shared: sharedPort,
    readNumbers: () => readLedgerNumbers(databases.jobs),
    onReadError: (error) => {
      observer.metrics.readErrors.add(1)
      log.warn({ err: error }, 'the metrics of the ledger could not be read')
    },
    token: config.metricsToken,
    now: () => performance.now(),
  })
}

const breakerStates = { closed: 0, 'half-open': 1, open: 2 } as const

function providerGauges(router: Router): readonly Gauge[] {
  const head = { labels: ['provider'] }
  const read = (figure: (health: ProviderHealth) => number) => (gauge: Gauge) => {
    gauge.clear()
    for (const health of router.health) gauge.set(figure(health), health.provider)
  }
  return [
    new Gauge({
      ...head,
      name: 'penny_provider_breaker_state',
      help: 'Circuit breaker of the provider in this process: 0 closed, 1 half-open, 2 open.',
      read: read(({ state }) => breakerStates[state]),
    }),
    new Gauge({
      ...head,
      name: 'penny_provider_in_flight_requests',
      help: 'Requests that the provider is answering for this process.',
      read: read(({ requestsUnderWay }) => requestsUnderWay),
    }),
  ]
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
