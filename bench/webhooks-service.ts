import type { Database } from '../src/db/database.ts'
import { deliverWebhooks } from '../src/jobs/deliver-webhooks.ts'
import { openSafePost } from '../src/tools/web-tools.ts'
import { createEndpoint } from '../src/webhooks/endpoints.ts'
import { chatBody } from './parts/chat-body.ts'
import { openLine } from './parts/open-line.ts'
import { median, round } from './parts/rounds.ts'
import { type ServiceProcess, startServiceProcess } from './parts/service-process.ts'

const accounts = 1_000
const connections = 64
const warmUpRequests = 20_000
const warmUpMsMax = 30_000
const roundMs = 5_000
const rounds = 7

type Sample = {
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  readonly webUs: number
  readonly postgresUs: number
}

/** An endpoint for each account. Old ones have failed for an hour and are tried every quarter of an hour; the others were never tried. */
export async function createEndpoints(
  database: Database,
  owners: readonly { readonly partition: number; readonly accountId: string }[],
  url: string,
  areOld: boolean,
): Promise<void> {
  for (const { partition, accountId } of owners) {
    const terms = { url, types: ['request.ended'], description: 'dead' } as const
    await database.transaction((connection) => createEndpoint(connection, { partition, accountId }, terms))
  }
  if (areOld)
    await database.execute(
      `update webhook_endpoints
          set failures = 6, failing_since = now() - interval '1 hour', due_at = now() + random() * interval '15 minutes'`,
    )
}

/**
 * Buffered requests through three services, in turn: their accounts have no endpoints, old dead ones, and ones that die together. The
 * deliverer runs in this process, as on a machine of its own.
 */
export async function measureService(deadUrl: string, progress: (line: string) => void, scale: number) {
  await using stack = new AsyncDisposableStack()
  const { origin, load } = await openLine(stack)
  const ask = async ({ baseUrl, apiKeys, cpu }: ServiceProcess, durationMs: number, requestsMax?: number) => {
    const before = cpu()
    const { requests, seconds, latency, failures, failure } = await load.ask({
      url: `${baseUrl}/chat/completions`,
      headers: apiKeys.map((key) => ({ authorization: `Bearer ${key}` })),
      body: chatBody(),
      connections,
      durationMs,
      requestsMax,
    })
    if (failures > 0) throw new Error(`${failures} requests failed: ${failure}`)
    const after = cpu()
    const perRequest = (part: 'web' | 'postgres') => ((after[part] - before[part]) * 1000) / requests
    const { p50, p99 } = latency
    return { perSecond: requests / seconds, p50, p99, webUs: perRequest('web'), postgresUs: perRequest('postgres') }
  }
  const subjects: { readonly endpoints: string; readonly service: ServiceProcess; readonly samples: Sample[] }[] = []
  for (const [endpoints, areOld] of [
    ['no endpoints', undefined],
    ['answer 500, for an hour', true],
    ['answer 500, all since now', false],
  ] as const) {
    progress(`starting the service: ${endpoints}`)
    const service = await startServiceProcess({ upstreamUrl: `${origin}/v1`, settles: false, accounts })
    stack.defer(() => service.stop())
    await ask(service, warmUpMsMax * scale, warmUpRequests)
    if (areOld !== undefined) {
      const owners = await service.database.query<{ partition: number; accountId: string }>(
        `select partition, id as "accountId" from accounts where name like 'bench %'`,
      )
      await createEndpoints(service.database, owners, deadUrl, areOld)
    }
    const job = deliverWebhooks({
      database: service.database,
      databaseUrl: service.databaseUrl,
      post: openSafePost({ publicUrl: 'https://bench.invalid', version: 'bench', allowsLoopback: true }),
      onDisabled() {},
      onAttempt() {},
      onError: (error) => console.error(error),
    })
    stack.defer(() => job.stop())
    subjects.push({ endpoints, service, samples: [] })
  }
  for (let turn = 1; turn <= Math.max(1, Math.round(rounds * scale)); turn += 1) {
    progress(`round ${turn}, the service`)
    for (const { service, samples } of subjects) samples.push(await ask(service, roundMs))
  }
  const without = subjects[0]!.samples
  return subjects.map(({ endpoints, samples }) => {
    const of = (read: (sample: Sample) => number) => round(median(samples.map(read)))
    const ratio = (read: (sample: Sample) => number) =>
      round(median(samples.map((sample, turn) => read(sample) / read(without[turn]!))))
    return {
      requests_to: 'the service',
      endpoints,
      per_second: of(({ perSecond }) => perSecond),
      'per_second/without': ratio(({ perSecond }) => perSecond),
      p50_ms: of(({ p50 }) => p50),
      'p50/without': ratio(({ p50 }) => p50),
      p99_ms: of(({ p99 }) => p99),
      'p99/without': ratio(({ p99 }) => p99),
      web_cpu_us: of(({ webUs }) => webUs),
      'web_cpu/without': ratio(({ webUs }) => webUs),
      postgres_cpu_us: of(({ postgresUs }) => postgresUs),
      'postgres_cpu/without': ratio(({ postgresUs }) => postgresUs),
    }
  })
}
