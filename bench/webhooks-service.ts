import type { Database } from '../src/db/database.ts'
import { deliverWebhooks } from '../src/jobs/deliver-webhooks.ts'
import { openSafePost } from '../src/tools/web-tools.ts'
import { createEndpoint } from '../src/webhooks/endpoints.ts'
import { askService, type ServiceSample } from './parts/ask-service.ts'
import { openLine } from './parts/open-line.ts'
import { besideWithout } from './parts/rounds.ts'
import { type ServiceProcess, startServiceProcess } from './parts/service-process.ts'

const accounts = 1_000
const connections = 64
const warmUpRequests = 20_000
const warmUpMsMax = 30_000
const roundMs = 5_000
const rounds = 7

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

/** Delivers to receivers on this machine. */
export function startDeliverer(database: Database, databaseUrl: string, onAttempt: () => void) {
  return deliverWebhooks({
    database,
    databaseUrl,
    post: openSafePost({ publicUrl: 'https://bench.invalid', version: 'bench', allowsLoopback: true }),
    onDisabled() {},
    onAttempt,
    onError: (error) => console.error(error),
  })
}

/**
 * Buffered requests through three services, in turn: their accounts have no endpoints, old dead ones, and ones that die together. The
 * deliverer runs in this process, as on a machine of its own.
 */
export async function measureService(deadUrl: string, progress: (line: string) => void, scale: number) {
  await using stack = new AsyncDisposableStack()
  const { origin, load } = await openLine(stack)
  const ask = (service: ServiceProcess, durationMs: number, requestsMax?: number) =>
    askService(load, service, { connections, durationMs, requestsMax })
  const subjects: {
    readonly endpoints: string
    readonly service: ServiceProcess
    readonly samples: ServiceSample[]
  }[] = []
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
    const job = startDeliverer(service.database, service.databaseUrl, () => {})
    stack.defer(() => job.stop())
    subjects.push({ endpoints, service, samples: [] })
  }
  for (let turn = 1; turn <= Math.max(1, Math.round(rounds * scale)); turn += 1) {
    progress(`round ${turn}, the service`)
    for (const { service, samples } of subjects) samples.push(await ask(service, roundMs))
  }
  const without = subjects[0]!.samples
  return subjects.map(({ endpoints, samples }) => ({
    requests_to: 'the service',
    endpoints,
    ...besideWithout(samples, without, {
      per_second: ({ perSecond }) => perSecond,
      p50_ms: ({ p50 }) => p50,
      p99_ms: ({ p99 }) => p99,
      web_cpu_us: ({ web }) => web,
      postgres_cpu_us: ({ postgres }) => postgres,
    }),
  }))
}
