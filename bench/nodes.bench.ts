import { askService, type ServiceSample } from './parts/ask-service.ts'
import { openLine } from './parts/open-line.ts'
import { median, round } from './parts/rounds.ts'
import { type ServiceProcess, startServiceProcess } from './parts/service-process.ts'
import type { Bench } from './run.ts'

/** The same load for one, two and four processes, and the same load for each process. */
const cases = [
  { processes: 1, connections: 64 },
  { processes: 2, connections: 64 },
  { processes: 2, connections: 128 },
  { processes: 4, connections: 64 },
  { processes: 4, connections: 256 },
]
const accounts = 256
const warmUpRequests = 3_000
const warmUpMsMax = 15_000
const roundMs = 3_000
const rounds = 5

/**
 * One, two and four web processes on one port and one PostgreSQL, round by round in turn. Where there are fewer cores than processes, this
 * does not show how much faster more processes are, but what it costs that each of them has its own batches.
 */
export const nodesBench: Bench = {
  title: 'one, two and four web processes on one port',
  async run(progress, { scale }) {
    const stack = new AsyncDisposableStack()
    try {
      const { origin, load } = await openLine(stack)
      const services = new Map<number, ServiceProcess>()
      for (const processes of new Set(cases.map((one) => one.processes))) {
        progress(`starting ${processes}`)
        const upstreamUrl = `${origin}/v1`
        const service = await startServiceProcess({ upstreamUrl, settles: false, accounts, processes })
        stack.defer(() => service.stop())
        services.set(processes, service)
        const order = { connections: 64, durationMs: warmUpMsMax, requestsMax: warmUpRequests * processes }
        await askService(load, service, order)
      }
      const samples = cases.map((): ServiceSample[] => [])
      for (let turn = 1; turn <= Math.max(1, Math.round(rounds * scale)); turn += 1) {
        progress(`round ${turn}`)
        for (const [index, { processes, connections }] of cases.entries()) {
          const order = { connections, durationMs: roundMs, requestsMax: undefined }
          samples[index]!.push(await askService(load, services.get(processes)!, order))
        }
      }
      return cases.map(({ processes, connections }, index) => ({
        processes,
        connections,
        ...tabulate(services.get(processes)!, samples[index]!, samples[0]!),
      }))
    } finally {
      await stack.disposeAsync()
    }
  },
}

function tabulate(service: ServiceProcess, samples: readonly ServiceSample[], ofOne: readonly ServiceSample[]) {
  const of = (read: (sample: ServiceSample) => number) => median(samples.map(read))
  return {
    per_second: Math.round(of((sample) => sample.perSecond)),
    'per_second/one': round(median(samples.map((sample, turn) => sample.perSecond / ofOne[turn]!.perSecond))),
    p50_ms: round(of((sample) => sample.p50)),
    web_cpu_us: round(of((sample) => sample.web)),
    postgres_cpu_us: round(of((sample) => sample.postgres)),
    memory_mib: Math.round(service.memoryKiB() / 1024),
  }
}
