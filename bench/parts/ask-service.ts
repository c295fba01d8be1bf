import { chatBody } from './chat-body.ts'
import type { LoadOrder } from './load.ts'
import type { Load } from './open-line.ts'
import type { ServiceProcess } from './service-process.ts'

/** Of the requests of one round. CPU is in microseconds per request. */
export type ServiceSample = {
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  readonly web: number
  readonly postgres: number
}

/** Buffered requests of all accounts of the service. Throws when one fails. */
export async function askService(
  load: Load,
  service: ServiceProcess,
  order: Pick<LoadOrder, 'connections' | 'durationMs' | 'requestsMax'>,
): Promise<ServiceSample> {
  const before = service.cpu()
  const { requests, seconds, failures, failure, latency } = await load.ask({
    url: `${service.baseUrl}/chat/completions`,
    headers: service.apiKeys.map((key) => ({ authorization: `Bearer ${key}` })),
    body: chatBody(),
    ...order,
  })
  if (failures > 0) throw new Error(`${failures} requests failed: ${failure}`)
  const after = service.cpu()
  const perRequest = (part: 'web' | 'postgres') => ((after[part] - before[part]) * 1000) / requests
  const { p50, p99 } = latency
  return { perSecond: requests / seconds, p50, p99, web: perRequest('web'), postgres: perRequest('postgres') }
}
