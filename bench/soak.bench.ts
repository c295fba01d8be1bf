import { chatBody } from './parts/chat-body.ts'
import { openLine } from './parts/open-line.ts'
import { round } from './parts/rounds.ts'
import { startServiceProcess } from './parts/service-process.ts'
import type { Bench } from './run.ts'

const requests = 1_000_000
const stretches = 20
const connections = 64

/** A million requests, every tenth of them streamed, and the memory of the web process after each stretch. */
export const soakBench: Bench = {
  title: 'a million requests, and what becomes of the memory of the web process',
  async run(progress, { scale }) {
    await using stack = new AsyncDisposableStack()
    const { origin, load } = await openLine(stack)
    const service = await startServiceProcess({
      upstreamUrl: `${origin}/v1`,
      settles: false,
      accounts: 16,
    })
    stack.defer(() => service.stop())
    const url = `${service.baseUrl}/chat/completions`
    const headers = service.apiKeys.map((key) => ({ authorization: `Bearer ${key}` }))
    const each = Math.ceil((requests * scale) / stretches)
    const rows = []
    let served = 0
    for (let stretch = 1; stretch <= stretches; stretch += 1) {
      const before = service.cpu().web
      const shares = [
        { body: chatBody(), requestsMax: Math.ceil(each * 0.9) },
        { body: chatBody({ stream: true }), requestsMax: Math.ceil(each * 0.1) },
      ]
      for (const share of shares) {
        const report = await load.ask({ url, headers, connections, durationMs: 3_600_000, ...share })
        if (report.failures > 0) throw new Error(`${report.failures} requests failed: ${report.failure}`)
        served += report.requests
      }
      progress(`${served} requests`)
      rows.push({
        requests: served,
        memory_mib: round(service.memoryKiB() / 1024),
        web_cpu_us: round(((service.cpu().web - before) * 1000) / each),
      })
    }
    return [
      ...rows,
      { requests: 'slope of the second half', memory_mib: `${slope(rows)} bytes a request`, web_cpu_us: '' },
    ]
  },
}

/** By least squares, over the second half: the first is the compiler's and the heap's own growth. */
function slope(rows: readonly { readonly requests: number; readonly memory_mib: number }[]): number {
  const half = rows.slice(Math.floor(rows.length / 2))
  const mean = (read: (row: (typeof rows)[number]) => number) =>
    half.reduce((sum, row) => sum + read(row), 0) / half.length
  const meanRequests = mean((row) => row.requests)
  const meanMemory = mean((row) => row.memory_mib)
  const covariance = half.reduce((sum, row) => sum + (row.requests - meanRequests) * (row.memory_mib - meanMemory), 0)
  const variance = half.reduce((sum, row) => sum + (row.requests - meanRequests) ** 2, 0)
  return round((covariance / variance) * 2 ** 20)
}
