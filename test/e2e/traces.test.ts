import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, test } from 'node:test'
import { parseMetrics, sampleValue } from '../support/prometheus.ts'
import { completed, created, type ScriptedUpstream, startScriptedUpstream, text } from '../support/scripted-upstream.ts'
import { startScriptedWeb } from '../support/scripted-web.ts'
import { getRow, postChat, startTestService, type TestAccount, type TestService } from '../support/service.ts'
import { until } from '../support/until.ts'

/** A span as a collector receives it, with its attributes in plain form. */
type CollectedSpan = {
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

type Collector = {
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
async function startCollector(): Promise<Collector> {
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

let collector: Collector
let service: TestService
let account: TestAccount
before(async () => {
  collector = await startCollector()
  const environment = {
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.endpoint,
    OTEL_EXPORTER_OTLP_HEADERS: 'x-team=penny, authorization=Bearer%20t',
    OTEL_SERVICE_NAME: 'penny-under-test',
  }
  service = await startTestService({ web: startScriptedWeb().tools, environment })
  account = await service.openAccount('1')
})
after(async () => {
  await service.stop()
  await collector.close()
})

const traceId = '4bf92f3577b34da6a3ce929d0e0e4736'
const callerSpan = '00f067aa0ba902b7'

function ask(content: string, traceparent?: string, more: object = {}): Promise<Response> {
  const headers = traceparent === undefined ? undefined : { headers: { traceparent } }
  return postChat(service, account.apiKey, { messages: [{ role: 'user', content }], ...more }, headers)
}

/** The spans of one request, once they have come; its own first. */
async function spansOf(requestId: string | null): Promise<CollectedSpan[]> {
  const own = await until(() => collector.spans.find((span) => span.attributes['penny.request_id'] === requestId))
  return [own, ...collector.spans.filter((span) => span.traceId === own.traceId && span !== own)]
}

test('one trace shows hold, upstream, tools and charge of a request, below the span of its caller', async () => {
  const answer = await ask('Search the web for pennies', `00-${traceId}-${callerSpan}-01`)
  await answer.json()
  const id = answer.headers.get('x-router-request-id')
  const [own, ...parts] = await spansOf(id)
  const row = await getRow(service, account.apiKey, answer)
  assert.deepEqual([own!.traceId, own!.parentSpanId, own!.kind], [traceId, callerSpan, 2])
  assert.deepEqual(
    parts.map(({ name }) => name),
    [
      'hold',
      'chat gpt-5.6-terra',
      'execute_tool web_search',
      'chat gpt-5.6-terra',
      'execute_tool web_fetch',
      'chat gpt-5.6-terra',
      'charge',
    ],
  )
  for (const part of parts) {
    assert.equal(part.parentSpanId, own!.spanId)
    assert.ok(BigInt(part.startTimeUnixNano) >= BigInt(own!.startTimeUnixNano))
    assert.ok(BigInt(part.endTimeUnixNano) <= BigInt(own!.endTimeUnixNano))
  }
  assert.equal(new Set([own!, ...parts].map(({ spanId }) => spanId)).size, 8)
  const charged = parts.find(({ name }) => name === 'charge')!.attributes['penny.cost.charged_micro_usdc']
  assert.equal(charged, Number(row.charged_atomic))
  assert.equal(own!.attributes['gen_ai.usage.input_tokens'], row.usage!.prompt_tokens)
  assert.equal(own!.attributes['gen_ai.usage.output_tokens'], row.usage!.completion_tokens)
  const { attributes, kind } = parts[1]!
  assert.deepEqual(
    [kind, attributes['gen_ai.operation.name'], attributes['gen_ai.request.model']],
    [3, 'chat', 'gpt-5.6-terra'],
  )
  assert.deepEqual(
    [attributes['penny.provider'], own!.attributes['penny.provider'], own!.attributes['penny.attempts']],
    ['upstream', 'upstream', 3],
  )
  const tool = parts[2]!.attributes
  assert.deepEqual([tool['gen_ai.operation.name'], tool['gen_ai.tool.name']], ['execute_tool', 'web_search'])
  assert.deepEqual([collector.resource['service.name'], collector.headers['x-team']], ['penny-under-test', 'penny'])
})

test('no word of the customer’s or of the model’s is in a span', async () => {
  const secret = 'xyzzy-plover'
  const answer = await ask(`Search the web for ${secret}`)
  await answer.json()
  const spans = await spansOf(answer.headers.get('x-router-request-id'))
  assert.ok(!JSON.stringify(spans).includes(secret))
  assert.ok(!JSON.stringify(spans).includes(account.apiKey))
})

test('a failure is an error in the trace, with its code', async () => {
  const answer = await ask('[sandbox:error 500] Fail.')
  await answer.json()
  const [own, ...parts] = await spansOf(answer.headers.get('x-router-request-id'))
  assert.deepEqual([own!.isError, own!.attributes['error.type']], [true, 'upstream_error'])
  assert.ok(parts.find(({ name }) => name.startsWith('chat'))!.isError)
})

test('a caller whose trace is not sampled gets no spans, and an invalid traceparent begins a new trace', async () => {
  const unrecorded = '11111111111111111111111111111111'
  await (await ask('Hello?', `00-${unrecorded}-${callerSpan}-00`)).json()
  const answer = await ask('Hello?', '00-00000000000000000000000000000000-0000000000000000-01')
  await answer.json()
  const [own] = await spansOf(answer.headers.get('x-router-request-id'))
  assert.equal(own!.parentSpanId, undefined)
  assert.match(own!.traceId, /^(?!0{32})[0-9a-f]{32}$/)
  assert.ok(!collector.spans.some((span) => span.traceId === unrecorded))
})

test('the upstream gets the trace, and only when tracing is on', async () => {
  const seen: (string | undefined)[] = []
  const upstream: ScriptedUpstream = await startScriptedUpstream((exchange) => {
    seen.push(exchange.incoming.headers.traceparent as string | undefined)
    exchange.send(created, text('Hi'), completed())
    exchange.end()
  })
  const environment = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.endpoint }
  const traced = await startTestService({ upstreamUrl: upstream.url, environment })
  const untraced = await startTestService({ upstreamUrl: upstream.url })
  for (const one of [traced, untraced]) {
    const { apiKey } = await one.openAccount('1')
    const init = { headers: { traceparent: `00-${traceId}-${callerSpan}-01` } }
    await (await postChat(one, apiKey, { messages: [{ role: 'user', content: 'Hi' }] }, init)).json()
  }
  assert.match(seen[0] ?? '', new RegExp(`^00-${traceId}-(?!${callerSpan})[0-9a-f]{16}-01$`))
  assert.equal(seen[1], undefined)
  await traced.stop()
  await untraced.stop()
  await upstream.close()
})

test('an unreachable collector delays no request, and lost spans are counted', async () => {
  const away = await startTestService({ environment: { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' } })
  const { apiKey } = await away.openAccount('1')
  const answer = await postChat(away, apiKey, { messages: [{ role: 'user', content: 'Hi' }] })
  assert.equal(answer.status, 200)
  await until(async () => {
    const page = parseMetrics(await (await fetch(`${away.origin}/metrics`)).text())
    return sampleValue(page, 'penny_spans_dropped_total')! > 0
  })
  await away.stop()
})

test('a buffered answer says in Server-Timing what its time went into', async () => {
  const answer = await ask('Search the web for pennies')
  await answer.json()
  const parts = answer.headers.get('server-timing')!.split(', ')
  assert.deepEqual(
    parts.map((part) => part.split(';')[0]),
    ['hold', 'upstream', 'tool', 'charge', 'total'],
  )
  for (const part of parts) assert.match(part, /^[a-z]+;dur=\d+(\.\d)?$/)
})
