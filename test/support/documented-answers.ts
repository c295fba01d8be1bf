import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { readFileSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { AddressInfo, Server } from 'node:net'
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'
import type { Config } from '../../src/config/config.ts'
import { type Service, type StartOptions, startService } from '../../src/run/service.ts'

// Every answer of a service that a test starts in its own process is compared with openapi.json: path, status, headers, body, each
// event of a stream. The document promises only that answers may get new members; here each member must be in it, so that it stays
// complete.

type Json = Readonly<Record<string, unknown>>
type Answer = {
  readonly headers?: Readonly<Record<string, Json>>
  readonly content?: Readonly<Record<string, { readonly schema: Json }>>
}
type Operation = { readonly responses: Readonly<Record<string, Answer & { readonly $ref?: string }>> }
type Document = {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: Readonly<Record<'responses' | 'headers' | 'schemas', Readonly<Record<string, Json>>>>
}

/** Of an answer whose path or method the document does not know, the envelope of the error is compared. */
const anyError: Answer = { content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } } }
const ourHeaders = /^(x-router-|x-request-id|x-should-retry|retry-after|idempotent-|payment-|www-authenticate)/
const problemsMax = 20
const bodyBytesMax = 256 * 1024

let judge: ((exchange: Exchange) => readonly string[]) | undefined

type Exchange = {
  readonly method: string
  readonly path: string
  readonly status: number
  readonly headers: Headers
  readonly text: string
}

/** Starts the service. Its `stop` throws when an answer was not as openapi.json describes it. */
export async function startTestedService(config: Config, options: StartOptions = {}): Promise<Service> {
  const service = await startService(config, () => {}, options)
  const assertDocumented = checkAnswers(Number(new URL(service.publicUrl).port))
  return {
    ...service,
    async stop() {
      await service.stop()
      assertDocumented()
    },
  }
}

/** Collects the differences of the answers of one server. The returned function stops, and throws when there were any. */
function checkAnswers(port: number): () => void {
  const problems = new Set<string>()
  const watch = (message: unknown) => {
    const { request, response, server } = message as {
      readonly request: IncomingMessage
      readonly response: ServerResponse
      readonly server: Server
    }
    if ((server.address() as AddressInfo | null)?.port !== port) return
    const [path] = request.url!.split('?', 1)
    // Of CORS the document says nothing.
    if (request.method === 'OPTIONS' || !/^(\/x402)?\/(v1|api)\//.test(path!)) return
    recordBody(response, (text) => {
      judge ??= createJudge()
      const { statusCode: status } = response
      const found = judge({ method: request.method!, path: path!, status, headers: sentHeaders(response), text })
      for (const problem of found)
        if (problems.size < problemsMax) problems.add(`${request.method} ${path} ${status}: ${problem}`)
    })
  }
  subscribe('http.server.request.start', watch)
  return () => {
    unsubscribe('http.server.request.start', watch)
    if (problems.size > 0) throw new Error(`openapi.json does not describe these answers:\n${[...problems].join('\n')}`)
  }
}

/** Calls `done` with the body once it was sent whole. Long ones are not kept: tests measure memory. */
function recordBody(response: ServerResponse, done: (text: string) => void): void {
  let chunks: Buffer[] | undefined = []
  let bytes = 0
  const { write, end } = response
  const record = (chunk: unknown) => {
    if (chunks === undefined || !(typeof chunk === 'string' || chunk instanceof Uint8Array)) return
    bytes += chunk.length
    if (bytes > bodyBytesMax) chunks = undefined
    else chunks.push(Buffer.from(chunk as string))
  }
  response.write = ((...given: Parameters<typeof write>) => {
    record(given[0])
    return write.apply(response, given)
  }) as typeof write
  response.end = ((...given: Parameters<typeof end>) => {
    record(given[0])
    return end.apply(response, given)
  }) as typeof end
  response.once('finish', () => {
    if (chunks !== undefined) done(Buffer.concat(chunks).toString())
  })
}

/** The headers as they were sent: `getHeaders` does not know those of `writeHead`. */
function sentHeaders(response: ServerResponse): Headers {
  const { _header: text } = response as unknown as { readonly _header: string }
  const lines = text.trimEnd().split('\r\n').slice(1)
  return new Headers(lines.map((line) => line.split(/: ?(.*)/s, 2) as [string, string]))
}

function createJudge() {
  const document = JSON.parse(readFileSync(new URL('../../openapi.json', import.meta.url), 'utf8')) as Document
  const ajv = new Ajv2020({ strict: false, allErrors: true })
  addFormats.default(ajv)
  ajv.addSchema({ $id: 'document', ...(closed(document) as object) })
  const validators = new Map<unknown, ValidateFunction>()
  const validate = (schema: Json, value: unknown): readonly string[] => {
    let compiled = validators.get(schema)
    if (compiled === undefined) {
      compiled = ajv.compile(absolute(closed(schema)) as Json)
      validators.set(schema, compiled)
    }
    if (compiled(value)) return []
    return compiled.errors!.map(
      ({ instancePath, message, params }) => `${instancePath} ${message} ${JSON.stringify(params)}`,
    )
  }
  const routes = Object.entries(document.paths).map(([path, methods]) => ({
    pattern: new RegExp(`^${path.replaceAll(/\{\w+\}/g, '[^/]+')}$`),
    methods,
  }))

  const findAnswer = ({ method, path, status }: Exchange): Answer | string => {
    const route = routes.find(({ pattern }) => pattern.test(plainPath(path)))
    const operation = route?.methods[method === 'HEAD' ? 'get' : method.toLowerCase()]
    if (operation === undefined) return status < 400 ? 'no such operation' : anyError
    const answer = operation.responses[status]
    if (answer === undefined) return 'no such status'
    return answer.$ref === undefined
      ? answer
      : (document.components.responses[answer.$ref.split('/').at(-1)!] as Answer)
  }

  const headerProblems = (answer: Answer, headers: Headers): readonly string[] => {
    const told = Object.entries(answer.headers ?? {}).map(([name, header]) => {
      const ref = header.$ref as string | undefined
      return [name, ref === undefined ? header : document.components.headers[name]!] as const
    })
    const unknown = [...headers.keys()].filter((name) => ourHeaders.test(name) && answer.headers?.[name] === undefined)
    return [
      ...(answer === anyError ? [] : unknown.map((name) => `header ${name} is not described`)),
      ...told.flatMap(([name, { required, schema }]) => {
        const value = headers.get(name)
        if (value === null) return required === true ? [`header ${name} is missing`] : []
        return validate(schema as Json, value).map((problem) => `header ${name}${problem}`)
      }),
    ]
  }

  const bodyProblems = ({ content = {} }: Answer, { headers, text, method, status }: Exchange): readonly string[] => {
    const type = (headers.get('content-type') ?? '').split(';', 1)[0]!
    if (method === 'HEAD' || (text === '' && Object.keys(content).length === 0)) return []
    const schema = content[type]?.schema
    if (schema === undefined) return [`the type ${type} is not described`]
    if (type === 'text/event-stream') return eventsOf(text).flatMap((event) => validate(schema, event))
    if (type === 'application/x-ndjson' && schema.type !== 'string')
      return linesOf(text).flatMap((line) => validate(schema, JSON.parse(line)))
    if (type !== 'application/json') return []
    const body = JSON.parse(text) as Json
    // A slow buffered answer has sent its status before it failed.
    return validate(
      status === 200 && 'error' in body && 'choices' in body === false && schema.$ref === completion
        ? anySchema
        : schema,
      body,
    )
  }

  return (exchange: Exchange): readonly string[] => {
    const answer = findAnswer(exchange)
    if (typeof answer === 'string') return [answer]
    return [...headerProblems(answer, exchange.headers), ...bodyProblems(answer, exchange)]
  }
}

const completion = '#/components/schemas/Completion'
const anySchema = anyError.content!['application/json']!.schema

/** As the routes compare it: without dot segments, percent-encoding, double and last slashes. */
function plainPath(path: string): string {
  const { pathname } = URL.parse(`http://localhost${path}`) ?? { pathname: path }
  const plain = pathname.replaceAll(/\/{2,}/g, '/').replace(/(.)\/$/, '$1')
  try {
    return decodeURI(plain)
  } catch {
    return plain
  }
}

function linesOf(text: string): readonly string[] {
  return text.split('\n').filter((line) => line !== '')
}

function eventsOf(text: string): readonly unknown[] {
  const data = text.split('\n').filter((line) => line.startsWith('data: ') && line !== 'data: [DONE]')
  return data.map((line) => JSON.parse(line.slice('data: '.length)))
}

/** Objects that name their members have no others, unless they say so. */
function closed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(closed)
  if (typeof value !== 'object' || value === null) return value
  const schema = value as Json
  const members = Object.fromEntries(Object.entries(schema).map(([name, member]) => [name, closed(member)]))
  const isObject = schema.type === 'object' && typeof schema.properties === 'object'
  return isObject && !('additionalProperties' in schema) ? { ...members, additionalProperties: false } : members
}

function absolute(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value).replaceAll('"#/components', '"document#/components'))
}
