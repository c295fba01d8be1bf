import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

/** A span as a collector receives it, with its attributes in plain form. */
export type CollectedSpan = {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string | undefined
  readonly name: string
  readonly kind: number
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly attributes: Readonly<Record<string, unknown>>
  readonly isError: boolean
}

export type Collector = {
  readonly endpoint: string
  readonly spans: CollectedSpan[]
  /** The headers of the last batch. */
  headers: NodeJS.Dict<string | string[]>
  /** The names and values of the last batch's resource. */
  resource: Readonly<Record<string, unknown>>
  close(): Promise<void>
}

type AnyValue = {
  readonly stringValue?: string
  readonly intValue?: string
  readonly doubleValue?: number
  readonly boolValue?: boolean
  readonly arrayValue?: { readonly values: readonly AnyValue[] }
}
type KeyValue = { readonly key: string; readonly value: AnyValue }

type Message = {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly KeyValue[] }
    readonly scopeSpans: readonly { readonly spans: readonly OtlpSpan[] }[]
  }[]
}

type OtlpSpan = Omit<CollectedSpan, 'attributes' | 'isError'> & {
  readonly attributes: readonly KeyValue[]
  readonly status: { readonly code?: number }
}

/** A collector of traces: OTLP over HTTP in JSON, kept in memory. */
export async function startCollector(): Promise<Collector> {
  const server = createServer(async (incoming, outgoing) => {
    const text = (await incoming.toArray()).join('')
    if (incoming.url !== '/v1/traces' || incoming.headers['content-type'] !== 'application/json') {
      outgoing.writeHead(404).end()
      return
    }
    const { resourceSpans } = JSON.parse(text) as Message
    collector.headers = incoming.headers
    for (const { resource, scopeSpans } of resourceSpans) {
      collector.resource = plainAttributes(resource.attributes)
      for (const span of scopeSpans.flatMap(({ spans }) => spans)) {
        const { attributes, status, ...rest } = span
        collector.spans.push({ ...rest, attributes: plainAttributes(attributes), isError: status.code === 2 })
      }
    }
    outgoing.writeHead(200, { 'content-type': 'application/json' }).end('{}')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const collector: Collector = {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans: [],
    headers: {},
    resource: {},
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
  return collector
}

function plainAttributes(attributes: readonly KeyValue[]): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, plainValue(value)]))
}

function plainValue(value: AnyValue): unknown {
  if (value.intValue !== undefined) return Number(value.intValue)
  if (value.arrayValue !== undefined) return value.arrayValue.values.map(plainValue)
  return value.stringValue ?? value.doubleValue ?? value.boolValue
}
