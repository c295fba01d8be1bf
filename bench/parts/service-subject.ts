import type { Subject } from './comparators.ts'
import { type ServiceOptions, startServiceProcess } from './service-process.ts'

/** The service as one of those that requests are sent through. `core`: with PostgreSQL on this core alone. */
export async function serviceSubject(name: string, options: ServiceOptions, core?: number): Promise<Subject> {
  const service = await startServiceProcess(options)
  if (core !== undefined) service.pin(core)
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
