import { z } from 'zod'
import type { Contract, ContractGroup } from './contract.ts'
import { errorAnswers } from './error-answers.ts'

type Json = Record<string, unknown>
type Schemas = Record<string, unknown>

/** The OpenAPI 3.1 document of the routes, generated from the schemas that validate them. */
export function openApiDocument(groups: readonly ContractGroup[], version: string): Json {
  const schemas: Schemas = {}
  const paths: Record<string, Json> = {}
  for (const { name, contracts } of groups) {
    for (const contract of contracts) {
      paths[contract.path] = {
        ...paths[contract.path],
        [contract.method.toLowerCase()]: { tags: [name], ...describe(contract, schemas) },
      }
    }
  }
  const responses = Object.entries(errorAnswers).map(([status, [description, body]]) => {
    const content = { 'application/json': { schema: schemaOf(body, 'output', schemas) } }
    return [errorName(status), { description, headers: headersOf(errorHeaders(Number(status)), schemas), content }]
  })
  return {
    openapi: '3.1.0',
    info: {
      title: 'Penny Router',
      version,
      description:
        'OpenAI-compatible inference, paid per request in USDC. Amounts are exact: `x_atomic` in atomic units (6 decimals), `x` in USDC. Answers may get new members.',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: '/' }],
    tags: groups.map(({ name, about }) => ({ name, description: about })),
    paths,
    components: {
      schemas: Object.fromEntries(Object.entries(schemas).sort(([a], [b]) => (a < b ? -1 : 1))),
      responses: Object.fromEntries(responses),
      headers: headersOf({ ...answerHeaders.shape, ...errorOnlyHeaders.shape }, schemas),
      securitySchemes,
    },
  }
}

const securitySchemes = {
  key: { type: 'http', scheme: 'bearer', description: 'An API key: penny_…' },
  management_key: {
    type: 'http',
    scheme: 'bearer',
    description: 'A management key: penny_mgmt_…, with the scope that the route names',
  },
  payment: { type: 'apiKey', in: 'header', name: 'PAYMENT-SIGNATURE', description: 'A payment of x402 version 2' },
  signIn: {
    type: 'apiKey',
    in: 'header',
    name: 'SIGN-IN-WITH-X',
    description: 'The address of a wallet, proven by the x402 extension sign-in-with-x',
  },
  session: { type: 'apiKey', in: 'cookie', name: '__Host-penny', description: 'A dashboard session, over https' },
  localSession: {
    type: 'apiKey',
    in: 'cookie',
    name: 'penny_session',
    description: 'A dashboard session, over http on this machine',
  },
}

const answerHeaders = z.object({
  'x-router-request-id': z.string().meta({ description: 'Identifies the request; see GET /api/requests/{id}' }),
  'x-request-id': z.string().meta({ description: 'The same as x-router-request-id' }),
})
const errorOnlyHeaders = z.object({
  'x-router-held-usdc': z.string().optional().meta({ description: 'Of a completion: the held amount in atomic USDC' }),
  'x-router-charged-usdc': z.string().optional().meta({ description: 'Of a completion: the charge in atomic USDC' }),
  'idempotent-replayed': z
    .string()
    .optional()
    .meta({ description: 'Of a completion: the error of an earlier attempt' }),
  'x-should-retry': z.enum(['true', 'false']).optional().meta({ description: 'Whether a retry can help' }),
  'retry-after': z.string().optional().meta({ description: 'Seconds' }),
  'retry-after-ms': z.string().optional().meta({ description: 'Milliseconds' }),
  'www-authenticate': z.string().optional(),
  'payment-required': z.string().optional().meta({ description: 'What to pay, by x402: JSON in base64' }),
  'payment-response': z.string().optional().meta({ description: 'The outcome of a payment over x402: JSON in base64' }),
})

function errorHeaders(status: number): Readonly<Record<string, unknown>> {
  const names = Object.keys(errorOnlyHeaders.shape).filter((name) => {
    if (name.startsWith('retry-')) return status === 429 || status === 503
    if (name === 'www-authenticate') return status === 401
    return name !== 'payment-required' || status === 402
  })
  return Object.fromEntries([...Object.keys(answerHeaders.shape), ...names].map((name) => [name, shared]))
}

/** Stands for a header that the document keeps once. */
const shared = Symbol('shared')

function headersOf(shape: Readonly<Record<string, unknown>>, schemas: Schemas): Json {
  return Object.fromEntries(
    Object.entries(shape).map(([name, schema]) => {
      if (schema === shared) return [name, { $ref: `#/components/headers/${name}` }]
      const { description, ...rest } = schemaOf(schema as z.ZodType, 'output', schemas)
      const required = !z.safeParse(schema as z.ZodType, undefined).success
      return [name, { ...(description !== undefined && { description }), ...(required && { required }), schema: rest }]
    }),
  )
}

function describe(contract: Contract, schemas: Schemas): Json {
  const { operation, summary, details, role, body, examples } = contract
  const example = examples?.body
  return {
    operationId: operation,
    summary,
    description: [summary, details, accessOf(contract)].flatMap((text) => (text ? `${text}.` : [])).join(' '),
    ...(role !== undefined && { 'x-role': role }),
    security: securityOf(contract),
    ...parametersOf(contract, schemas),
    ...(body !== undefined && {
      requestBody: {
        required: !body.safeParse({}).success,
        content: {
          'application/json': { schema: schemaOf(body, 'input', schemas), ...(example !== undefined && { example }) },
        },
      },
    }),
    responses: {
      [contract.status ?? 200]: answerOf(contract, schemas),
      ...Object.fromEntries(
        statusesOf(contract).map((status) => [status, { $ref: `#/components/responses/${errorName(status)}` }]),
      ),
    },
  }
}

function errorName(status: number | string): string {
  return `Error${status}`
}

function accessOf({ access, role, scope }: Contract): string | undefined {
  const session = `a session with the role ${role}${role === 'owner' ? '' : ' or a higher one'}`
  const management = scope === undefined ? '' : `, or a management key with the scope ${scope}`
  switch (access) {
    case 'public':
      return undefined
    case 'key':
      return 'Needs an API key'
    case 'wallet':
      return 'Needs a payment or a sign-in of a wallet'
    case 'operator':
      return 'Needs the session of an operator'
    case 'key or session':
      return `Needs an API key, or ${session}${management}`
    case 'sandbox':
      return `Needs ${session}. There only with the sandbox`
    case 'session':
      return `Needs ${session}${management}`
  }
}

/** The errors that a caller may get, by what the route takes. */
function statusesOf(contract: Contract): readonly number[] {
  const { access, method, isChat, body, parameters, refusedWith = [] } = contract
  const isOfSession = access !== 'public' && access !== 'key' && access !== 'wallet'
  return [
    ...new Set<number>([
      ...(access === 'public' ? [] : [401, 403]),
      // From a page of another site.
      ...(method === 'GET' ? [] : [403]),
      ...(isOfSession ? [409] : []),
      ...(access === 'wallet' ? [402] : []),
      ...(access === 'sandbox' || access === 'operator' || parameters !== undefined ? [404] : []),
      ...(body === undefined ? [] : [403, 404, 408, 413, 415]),
      ...(isChat ? [402, 403, 404, 422, 502, 504] : []),
      ...refusedWith,
      // 400 also for a request without a Host header, or with two Authorization headers.
      ...[400, 429, 500, 503],
    ]),
  ].sort((a, b) => a - b)
}

function securityOf({ access, scope }: Contract): Json[] {
  if (access === 'public') return []
  if (access === 'wallet') return [{ payment: [] }, { signIn: [] }]
  if (access === 'key') return [{ key: [] }]
  const management = scope === undefined ? [] : [{ management_key: [scope] }]
  return [...(access === 'key or session' ? [{ key: [] }] : []), { session: [] }, { localSession: [] }, ...management]
}

function parametersOf(contract: Contract, schemas: Schemas): Json {
  const places = [
    ['path', contract.parameters],
    ['query', contract.query],
    ['header', contract.headers],
  ] as const
  const parameters = places.flatMap(([place, object]) =>
    Object.entries(object?.shape ?? {}).map(([name, given]) => {
      const { description, ...schema } = schemaOf(given as z.ZodType, 'output', schemas)
      const required = !z.safeParse(given, undefined).success
      return { name, in: place, ...(description !== undefined && { description }), required, schema }
    }),
  )
  return parameters.length === 0 ? {} : { parameters }
}

function answerOf(contract: Contract, schemas: Schemas): Json {
  const { answer, events, linesAs, alsoAs = [], answerHeaders: own, examples } = contract
  const shape = Object.fromEntries(Object.keys(answerHeaders.shape).map((name) => [name, shared]))
  const headers = headersOf({ ...shape, ...own?.shape }, schemas)
  if (answer === undefined) return { description: 'Done', headers }
  const example = examples?.answer
  return {
    description: 'Done',
    headers,
    content: {
      [linesAs ?? 'application/json']: {
        schema: schemaOf(answer, 'output', schemas),
        ...(example !== undefined && { example }),
      },
      ...(events && { 'text/event-stream': { schema: schemaOf(events, 'output', schemas) } }),
      ...Object.fromEntries(alsoAs.map((type) => [type, { schema: { type: 'string' } }])),
    },
  }
}

/** Renders a schema. Its named parts are stored once in `schemas`, and referenced. */
function schemaOf(schema: z.ZodType, io: 'input' | 'output', schemas: Schemas): Json {
  const made = z.toJSONSchema(schema, { io, unrepresentable: 'any' }) as Json & { $defs?: Record<string, Json> }
  const { $schema: _, $defs = {}, ...own } = made
  for (const [name, definition] of Object.entries($defs)) schemas[name] ??= cleaned(definition, io)
  if (typeof own.id !== 'string') return cleaned(own, io) as Json
  schemas[own.id] ??= cleaned(own, io)
  return { $ref: `#/components/schemas/${own.id}` }
}

/**
 * Removes what the document does not need: ids, which became component names; patterns, where there is a format; and
 * `additionalProperties: false` of answers, which may get new members; and the bounds of safe integers.
 */
function cleaned(value: unknown, io: 'input' | 'output'): unknown {
  if (Array.isArray(value)) return value.map((member) => cleaned(member, io))
  if (typeof value !== 'object' || value === null) return value
  const schema = value as Json
  const left = new Set<string>()
  if (typeof schema.id === 'string') left.add('id')
  if (typeof schema.format === 'string') left.add('pattern')
  if (schema.maximum === Number.MAX_SAFE_INTEGER) left.add('maximum')
  if (schema.minimum === Number.MIN_SAFE_INTEGER) left.add('minimum')
  // Without it, generators take an object that names no members for one that has none.
  const isOpen = isEmpty(schema.additionalProperties) && schema.properties !== undefined
  if (io === 'output' ? schema.additionalProperties === false : isOpen) left.add('additionalProperties')
  const members = Object.entries(schema)
    .filter(([name]) => !left.has(name))
    .map(([name, member]) => [
      name,
      name === '$ref' ? String(member).replace('#/$defs/', '#/components/schemas/') : cleaned(member, io),
    ])
  return Object.fromEntries(members)
}

/** Of an object that is open to any member. */
function isEmpty(schema: unknown): boolean {
  return typeof schema === 'object' && schema !== null && Object.keys(schema).length === 0
}
