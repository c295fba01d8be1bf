// Example values for the API reference, made from the schemas of openapi.json. A test checks each against its schema.

export type Json = Readonly<Record<string, unknown>>
export type Schemas = Readonly<Record<string, Json>>

const requestId = 'req_0198f0c2a1b2700080d0a1b2c3d4e5f6'
const instant = '2026-11-16T09:30:00.000Z'
const uuid = '0198f0c2-a1b2-7000-80d0-a1b2c3d4e5f6'
const hash = `0x${'5f'.repeat(32)}`
const depthMax = 12

/** Amounts of one request that add up: held 2400, charged 873, the rest returned. */
const amounts: Readonly<Record<string, string>> = {
  quote: '0.0024',
  held: '0.0024',
  extended: '0',
  charged: '0.000873',
  refunded: '0.001527',
  given_back: '0',
  excess: '0',
  value: '0.036666',
  from_credit: '0.001527',
  authorized: '0.000873',
  inference: '0.000873',
  search: '0',
  available: '24.998291',
  spendable: '24.998291',
  limit: '5',
  spent: '0.274651',
  amount: '2.5',
}

/** Values by member name, for members whose schema alone would give an unhelpful example. */
const byName: Readonly<Record<string, unknown>> = {
  id: uuid,
  request_id: requestId,
  model: 'gpt-5.6-terra',
  name: 'production',
  hint: 'penny_…a1b2',
  secret: 'penny_4Zk0…',
  created_at: instant,
  finish_reason: 'stop',
  code: 'insufficient_balance',
  message: 'This request may cost 0.0024 USDC; 0.0011 USDC is available. Deposit USDC or lower max_tokens.',
  prompt_tokens: 18,
  completion_tokens: 171,
  reasoning_tokens: 64,
  cached_tokens: 0,
  total_tokens: 189,
  max_tokens: 400,
  first_token_ms: 412,
  total_ms: 2_180,
  requests: 42,
  version: '6f1d8a52c3e94b07',
  input_per_million: '1',
  output_per_million: '5',
  search_per_call: '0.00875',
  month: '2026-11',
  signature: `0x${'a1'.repeat(65)}`,
  token: 'one-time-token-from-the-link',
  user_agent: 'Mozilla/5.0',
  chain_id: 5042002,
  block: 184_220,
  number: 229,
  entries: 42,
}

/** An example for a schema, with every member that it names. */
export function exampleOf(schema: Json, schemas: Schemas, name = '', depth = 0): unknown {
  if (typeof schema.$ref === 'string') return exampleOf(schemas[schema.$ref.split('/').at(-1)!]!, schemas, name, depth)
  if (schema.const !== undefined) return schema.const
  if (Array.isArray(schema.enum)) return schema.enum[0]
  if (schema.default !== undefined) return schema.default
  const choices = (schema.anyOf ?? schema.oneOf ?? schema.allOf) as readonly Json[] | undefined
  if (choices !== undefined)
    return exampleOf(choices.find(({ type }) => type !== 'null') ?? choices[0]!, schemas, name, depth)
  const type = [schema.type].flat().find((candidate) => candidate !== 'null')
  if (type === 'object' || schema.properties !== undefined) return objectOf(schema, schemas, depth)
  if (type === 'array')
    return depth > depthMax ? [] : [exampleOf((schema.items ?? {}) as Json, schemas, singular(name), depth + 1)]
  if (type === 'boolean') return name !== 'partial' && name !== 'has_more'
  if (type === 'integer' || type === 'number') return numberOf(schema, name)
  if (type === 'string') return stringOf(schema, name)
  return byName[name] ?? null
}

function objectOf(schema: Json, schemas: Schemas, depth: number): Json {
  if (depth > depthMax) return {}
  const members = Object.entries((schema.properties ?? {}) as Record<string, Json>)
  return Object.fromEntries(members.map(([name, member]) => [name, exampleOf(member, schemas, name, depth + 1)]))
}

function numberOf(schema: Json, name: string): number {
  const value = byName[name]
  const least = Number(schema.minimum ?? schema.exclusiveMinimum ?? 0)
  return typeof value === 'number' && value <= Number(schema.maximum ?? value) ? value : Math.max(least, 1)
}

function stringOf(schema: Json, name: string): string {
  const pattern = typeof schema.pattern === 'string' ? new RegExp(schema.pattern) : undefined
  const lengthMax = Number(schema.maxLength ?? Number.MAX_SAFE_INTEGER)
  const fits = (text: unknown): text is string =>
    typeof text === 'string' && text.length <= lengthMax && (pattern === undefined || pattern.test(text))
  const [given] = (schema.examples ?? []) as readonly string[]
  if (schema.format === 'date-time') return instant
  if (schema.format === 'date') return instant.slice(0, 10)
  if (schema.format === 'uuid') return uuid
  const amount = amounts[name.replace(/_atomic$/, '')]
  if (amount !== undefined && given !== undefined) {
    const written = name.endsWith('_atomic') ? String(Math.round(Number(amount) * 1e6)) : amount
    if (fits(written)) return written
  }
  const candidates = [given, byName[name], hash, requestId, '2026-11', 'example', '0', 'eyJhbGciOi']
  return candidates.find(fits) ?? ''
}

function singular(name: string): string {
  return name.replace(/s$/, '')
}
