import { chatBody } from './parts/chat-body.ts'
import type { LoadOrder, LoadReport } from './parts/load.ts'
import { openLine } from './parts/open-line.ts'
import { median, round } from './parts/rounds.ts'
import { type ServiceProcess, startServiceProcess } from './parts/service-process.ts'
import type { Bench } from './run.ts'

const counts = [1, 2, 4]
const connections = 64
const accounts = 64
const warmUpRequests = 3_000
const warmUpMsMax = 15_000
const roundMs = 3_000
const rounds = 5

type Sample = { readonly perSecond: number; readonly p50: number; readonly web: number; readonly postgres: number }

/**
 * One, two and four web processes on one port and one PostgreSQL, under the same load, round by round in turn. Where the cores are fewer than
 * the processes it is not speed that is added, and this tells what sharing the ledger costs.
 */
export const nodesBench: Bench = {
  title: 'one, two and four web processes on one port',
  async run(progress, { scale }) {
    const stack = new AsyncDisposableStack()
    try {
      const { origin, load } = await openLine(stack)
      const samples = new Map<ServiceProcess, Sample[]>()
      for (const processes of counts) {
        progress(`starting ${processes}`)
        const upstreamUrl = `${origin}/v1`
        const service = await startServiceProcess({ upstreamUrl, settles: false, accounts, processes })
        stack.defer(() => service.stop())
        await measure(load.ask, service, warmUpMsMax, warmUpRequests * processes)
        samples.set(service, [])
      }
      for (let turn = 1; turn <= Math.max(1, Math.round(rounds * scale)); turn += 1) {
        progress(`round ${turn}`)
        for (const [service, taken] of samples) taken.push(await measure(load.ask, service, roundMs))
      }
      return [...samples].map(([service, taken]) => tabulate(service, taken, [...samples.values()][0]!))
    } finally {
      await stack.disposeAsync()
    }
  },
}

async function measure(
  ask: (order: LoadOrder) => Promise<LoadReport>,
  service: ServiceProcess,
  durationMs: number,
  requestsMax?: number,
): Promise<Sample> {
  const before = service.cpu()
  const { requests, seconds, failures, failure, latency } = await ask({
    url: `${service.baseUrl}/chat/completions`,
    headers: service.apiKeys.map((key) => ({ authorization: `Bearer ${key}` })),
    body: chatBody(),
    connections,
    durationMs,
    requestsMax,
  })
  if (failures > 0) throw new Error(`${failures} requests failed: ${failure}`)
  const after = service.cpu()
  const perRequest = (part: 'web' | 'postgres') => ((after[part] - before[part]) * 1000) / requests
  return { perSecond: requests / seconds, p50: latency.p50, web: perRequest('web'), postgres: perRequest('postgres') }
}

function tabulate(service: ServiceProcess, samples: readonly Sample[], ofOne: readonly Sample[]) {
  const of = (read: (sample: Sample) => number) => median(samples.map(read))
  return {
    processes: service.processes,
    per_second: Math.round(of((sample) => sample.perSecond)),
    'per_second/one': round(median(samples.map((sample, turn) => sample.perSecond / ofOne[turn]!.perSecond))),
    p50_ms: round(of((sample) => sample.p50)),
    web_cpu_us: round(of((sample) => sample.web)),
    postgres_cpu_us: round(of((sample) => sample.postgres)),
    memory_mib: Math.round(service.memoryKiB() / 1024),
  }
}
