import type { Subject } from './comparators.ts'
import { type ServiceOptions, startServiceProcess } from './service-process.ts'

/** The service as one of those that requests are sent through. */
export async function serviceSubject(name: string, options: ServiceOptions): Promise<Subject> {
  const service = await startServiceProcess(options)
  return {
    name,
    baseUrl: service.baseUrl,
    headers: service.apiKeys.map((key) => ({ authorization: `Bearer ${key}` })),
    cpu: service.cpu,
    memoryKiB: service.memoryKiB,
    settled: service.settled,
    stop: service.stop,
  }
}
