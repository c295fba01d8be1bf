import { monitorEventLoopDelay, performance } from 'node:perf_hooks'
import { Gauge, type Metric } from './metric.ts'

const lagWindowMs = 10_000
const percentiles = [50, 90, 99, 100]

export type ProcessMetrics = { readonly metrics: readonly Metric[]; stop(): void }

/** CPU, memory and event loop of this process, under the metric names that common dashboards expect. */
export function watchProcess(version: string): ProcessMetrics {
  const lag = new Gauge({
    name: 'penny_event_loop_lag_seconds',
    help: 'How late timers of this process were within the last ten seconds.',
    // Not `quantile`, which Prometheus reserves for summaries.
    labels: ['percentile'],
  })
  const delay = monitorEventLoopDelay({ resolution: 10 })
  delay.enable()
  const noteLag = () => {
    for (const percentile of percentiles) lag.set(delay.percentile(percentile) / 1e9, String(percentile))
    delay.reset()
  }
  const busy = new Gauge({
    name: 'penny_event_loop_utilization_ratio',
    help: 'The share of its time that this process was busy within the last ten seconds.',
  })
  // Measured per interval: the mean since the start would hide an hour of overload after a quiet day.
  let last = performance.eventLoopUtilization()
  busy.set(last.utilization)
  const note = () => {
    const now = performance.eventLoopUtilization()
    busy.set(performance.eventLoopUtilization(now, last).utilization)
    last = now
    noteLag()
  }
  noteLag()
  const timer = setInterval(note, lagWindowMs).unref()
  const build = new Gauge({
    name: 'penny_build_info',
    help: 'Version of the service and of Node.',
    labels: ['version', 'node'],
  })
  build.set(1, version, process.version)
  return {
    metrics: [build, lag, busy, ...createGauges()],
    stop() {
      clearInterval(timer)
      delay.disable()
    },
  }
}

function createGauges(): readonly Metric[] {
  return [
    new Gauge({
      name: 'process_cpu_seconds_total',
      help: 'Processor time used.',
      type: 'counter',
      read: (gauge) => {
        const { user, system } = process.cpuUsage()
        gauge.set((user + system) / 1e6)
      },
    }),
    new Gauge({
      name: 'process_resident_memory_bytes',
      help: 'Memory in use.',
      read: (gauge) => gauge.set(process.memoryUsage.rss()),
    }),
    new Gauge({
      name: 'nodejs_heap_size_used_bytes',
      help: 'Memory in use by JavaScript objects.',
      read: (gauge) => gauge.set(process.memoryUsage().heapUsed),
    }),
    new Gauge({
      name: 'process_start_time_seconds',
      help: 'Start time of this process, in Unix seconds.',
      read: (gauge) => gauge.set(performance.timeOrigin / 1000),
    }),
  ]
}
