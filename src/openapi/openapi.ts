import { z } from 'zod'
import type { Contract } from './contract.ts'
import { errorEnvelope } from './shapes.ts'

type Json = Record<string, unknown>

/** The OpenAPI 3.1 document of the routes, generated from the schemas that validate them. */
export function openApiDocument(contracts: readonly Contract[], version: string): Json {
  const schemas: Json = {}
  const paths: Record<string, Json> = {}
  for (const contract of contracts) {
    paths[contract.path] = {
      ...paths[contract.path],
      [contract.method.toLowerCase()]: describe(contract, schemas),
    }
  }
  schemas.Error = schemaOf(errorEnvelope, 'output', schemas, true)
  return {
    openapi: '3.1.0',
    info: {
      title: 'Penny Router',
      version,
      description:
        'OpenAI-compatible inference, paid per request in USDC. Amounts are exact: `x_atomic` in atomic units (6 decimals), `x` in USDC.',
    },
    servers: [{ url: '/' }],
    paths,
    components: {
      schemas: Object.fromEntries(Object.entries(schemas).sort(([a], [b]) => (a < b ? -1 : 1))),
      securitySchemes: {
        key: { type: 'http', scheme: 'bearer', description: 'An API key: penny_…' },
        management_key: {
          type: 'http',
          scheme: 'bearer',
          description: 'A management key: penny_mgmt_…, with the scope that the route names',
        },
        payment: {
          type: 'apiKey',
          in: 'header',
          name: 'PAYMENT-SIGNATURE',
          description: 'A payment of x402 version 2',
        },
        signIn: {
          type: 'apiKey',
          in: 'header',
          name: 'SIGN-IN-WITH-X',
          description: 'The address of a wallet, proven by the x402 extension sign-in-with-x',
        },
        session: { type: 'apiKey', in: 'cookie', name: '__Host-penny', description: 'A dashboard session' },
      },
    },
  }
}

function describe(contract: Contract, schemas: Json): Json {
  return {
    operationId: contract.operation,
    summary: contract.summary,
    ...(contract.role !== undefined && { 'x-role': contract.role }),
    security: securityOf(contract),
    ...parametersOf(contract, schemas),
    ...(contract.body !== undefined && {
      requestBody: {
        required: !contract.body.safeParse({}).success,
        content: { 'application/json': { schema: schemaOf(contract.body, 'input', schemas) } },
      },
    }),
    responses: {
      [contract.status ?? 200]: answerOf(contract, schemas),
      default: {
        description: 'An error',
        content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
      },
    },
  }
}

function securityOf({ access, scope }: Contract): Json[] {
  if (access === 'public') return []
  if (access === 'wallet') return [{ payment: [] }, { signIn: [] }]
  if (access === 'key') return [{ key: [] }]
  const management = scope === undefined ? [] : [{ management_key: [scope] }]
  return [...(access === 'key or session' ? [{ key: [] }] : []), { session: [] }, ...management]
}

function parametersOf(contract: Contract, schemas: Json): Json {
  const places = [
    ['path', contract.parameters],
    ['query', contract.query],
    ['header', contract.headers],
  ] as const
  const parameters = places.flatMap(([place, object]) =>
    Object.entries(object?.shape ?? {}).map(([name, schema]) => ({
      name,
      in: place,
      required: !z.safeParse(schema, undefined).success,
      schema: schemaOf(schema as z.ZodType, 'output', schemas),
    })),
  )
  return parameters.length === 0 ? {} : { parameters }
}

function answerOf(contract: Contract, schemas: Json): Json {
  if (contract.answer === undefined) return { description: 'Done' }
  const schema = schemaOf(contract.answer, 'output', schemas)
  const others = (contract.alsoAs ?? []).map((type) => [type, { schema: { type: 'string' } }])
  return {
    description: 'Done',
    content: { [contract.linesAs ?? 'application/json']: { schema }, ...Object.fromEntries(others) },
  }
}

/** Renders a schema. Its named parts are stored once in `schemas`, and referenced. */
function schemaOf(schema: z.ZodType, io: 'input' | 'output', schemas: Json, whole = false): unknown {
  const made = z.toJSONSchema(schema, { io, unrepresentable: 'any' }) as Json & { $defs?: Record<string, Json> }
  const { $schema: _, $defs = {}, ...own } = made
  for (const [name, definition] of Object.entries($defs)) schemas[name] ??= cleaned(definition, io)
  if (whole || typeof own.id !== 'string') return cleaned(own, io)
  schemas[own.id] ??= cleaned(own, io)
  return { $ref: `#/components/schemas/${own.id}` }
}

/**
 * Removes what the document does not need: ids, which became component names; patterns, where there is a format; and
 * `additionalProperties` of answers, which may get new members.
 */
function cleaned(value: unknown, io: 'input' | 'output'): unknown {
  if (Array.isArray(value)) return value.map((member) => cleaned(member, io))
  if (typeof value !== 'object' || value === null) return value
  const schema = value as Json
  const left = new Set<string>()
  if (typeof schema.id === 'string') left.add('id')
  if (typeof schema.format === 'string') left.add('pattern')
  if (io === 'output' || typeof schema.additionalProperties === 'object') left.add('additionalProperties')
  const members = Object.entries(schema)
    .filter(([name]) => !left.has(name))
    .map(([name, member]) => [
      name,
      name === '$ref' ? String(member).replace('#/$defs/', '#/components/schemas/') : cleaned(member, io),
    ])
  return Object.fromEntries(members)
}
