import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { schemaValue } from './schema-value.ts'

const fill = (name: string) => `text for ${name} 👋`

type Schema = { [keyword: string]: unknown }

/** An independent validator, written from the JSON Schema specification, so that it shares no mistake with the generator. */
function violations(value: unknown, schema: Schema | boolean, root: Schema, at = '$'): string[] {
  if (typeof schema === 'boolean') return schema ? [] : [`${at}: nothing is allowed here`]
  const found: string[] = []
  const expect = (holds: boolean, what: string) =>
    void (holds || found.push(`${at}: ${what} in ${JSON.stringify(value)}`))
  const all = (part: unknown) => violations(value, part as Schema, root, at)
  if (typeof schema.$ref === 'string') {
    const keys = schema.$ref.split('/').slice(1)
    found.push(...all(keys.reduce((node, key) => node[key] as Schema, root)))
  }
  if ('const' in schema) expect(value === schema.const, 'const')
  if (Array.isArray(schema.enum)) expect(schema.enum.includes(value), 'enum')
  if (Array.isArray(schema.allOf)) found.push(...schema.allOf.flatMap(all))
  if (Array.isArray(schema.anyOf))
    expect(
      schema.anyOf.some((part) => all(part).length === 0),
      'anyOf',
    )
  if (schema.type !== undefined)
    expect(
      [schema.type].flat().some((type) => isOfType(value, type)),
      `type ${schema.type}`,
    )
  if (typeof value === 'string') {
    const length = [...value].length
    expect(length >= Number(schema.minLength ?? 0) && length <= Number(schema.maxLength ?? Infinity), 'length')
  }
  if (typeof value === 'number') {
    expect(value >= Number(schema.minimum ?? -Infinity) && value <= Number(schema.maximum ?? Infinity), 'range')
    expect(value > Number(schema.exclusiveMinimum ?? -Infinity), 'exclusiveMinimum')
    expect(value < Number(schema.exclusiveMaximum ?? Infinity), 'exclusiveMaximum')
    const quotient = value / Number(schema.multipleOf ?? value)
    expect(value === 0 || Math.abs(quotient - Math.round(quotient)) < 1e-9, 'multipleOf')
  }
  if (Array.isArray(value)) {
    expect(value.length >= Number(schema.minItems ?? 0) && value.length <= Number(schema.maxItems ?? Infinity), 'items')
    if (schema.uniqueItems === true)
      expect(new Set(value.map((item) => JSON.stringify(item))).size === value.length, 'unique')
    const items = (schema.items ?? true) as Schema
    found.push(...value.flatMap((item, index) => violations(item, items, root, `${at}[${index}]`)))
  } else if (typeof value === 'object' && value !== null) {
    const properties = (schema.properties ?? {}) as Record<string, Schema>
    for (const name of (schema.required ?? []) as string[]) expect(Object.hasOwn(value, name), `required ${name}`)
    for (const [name, member] of Object.entries(value)) {
      const declared = Object.hasOwn(properties, name) ? properties[name]! : (schema.additionalProperties ?? true)
      found.push(...violations(member, declared as Schema, root, `${at}.${name}`))
    }
  }
  return found
}

function isOfType(value: unknown, type: unknown): boolean {
  if (type === 'null') return value === null
  if (type === 'array') return Array.isArray(value)
  if (type === 'integer') return Number.isInteger(value)
  if (type === 'object') return typeof value === 'object' && value !== null && !Array.isArray(value)
  return typeof value === type
}

function obeys(schema: Schema): void {
  const value = schemaValue(schema, fill)
  assert.deepEqual(violations(value, schema, schema), [])
  assert.deepEqual(schemaValue(schema, fill), value, 'the same schema gives the same value')
}

const anySchema = fc.letrec<{ schema: Schema }>((tie) => ({
  schema: fc.oneof(
    { maxDepth: 4 },
    fc.constantFrom<Schema>({ type: 'boolean' }, { type: 'null' }, { type: ['string', 'null'] }, { const: 7 }, {}),
    fc.record({ enum: fc.array(fc.oneof(fc.string(), fc.integer()), { minLength: 1 }) }),
    fc.tuple(fc.nat(50), fc.nat(50)).map(([low, more]) => ({ type: 'string', minLength: low, maxLength: low + more })),
    fc.tuple(fc.integer(), fc.nat(1000)).map(([low, more]) => ({ type: 'integer', minimum: low, maximum: low + more })),
    fc
      .integer({ min: -9, max: 9 })
      .map((low) => ({ type: 'number', exclusiveMinimum: low, exclusiveMaximum: low + 1 })),
    fc.tuple(fc.integer({ min: -99, max: 99 }), fc.constantFrom(0.1, 0.25, 3)).map(([low, step]) => ({
      type: 'number',
      minimum: low,
      multipleOf: step,
    })),
    fc.record({ anyOf: fc.array(tie('schema'), { minLength: 1, maxLength: 3 }) }),
    fc.tuple(tie('schema'), fc.nat(3), fc.nat(3)).map(([items, low, more]) => ({
      type: 'array',
      items,
      minItems: low,
      maxItems: low + more,
    })),
    fc.tuple(fc.dictionary(fc.string(), tie('schema'), { maxKeys: 4 }), fc.boolean()).map(([properties, strict]) => ({
      type: 'object',
      properties,
      required: strict ? Object.keys(properties) : [],
      additionalProperties: false,
    })),
  ),
})).schema

test('a value obeys the schema it was made for, whatever the schema', () => {
  fc.assert(fc.property(anySchema, obeys), { numRuns: 500 })
})

test('references, combined schemas and unique items are obeyed', () => {
  obeys({
    $defs: {
      color: { enum: ['red', 'green', 'blue'] },
      named: { properties: { name: { type: 'string' } }, required: ['name'] },
    },
    allOf: [{ $ref: '#/$defs/named' }, { properties: { age: { type: 'integer', minimum: 0 } }, required: ['age'] }],
    type: 'object',
    properties: { colors: { type: 'array', items: { $ref: '#/$defs/color' }, minItems: 3, uniqueItems: true } },
    required: ['colors'],
  })
})

test('a schema that refers to itself ends', () => {
  const node = {
    type: 'object',
    properties: { next: { anyOf: [{ $ref: '#/$defs/node' }, { type: 'null' }] } },
    required: ['next'],
  }
  obeys({ $ref: '#/$defs/node', $defs: { node } })
  const tree = {
    type: 'object',
    properties: { children: { type: 'array', items: { $ref: '#' } } },
    required: ['children'],
  }
  obeys(tree)
  const wide = Object.fromEntries(Array.from({ length: 20 }, (_, index) => [`branch${index}`, { $ref: '#' }]))
  obeys({ type: 'object', properties: wide })
  // These have no finite value; any answer is acceptable, as long as there is one.
  schemaValue({ $ref: '#' }, fill)
  schemaValue({ type: 'object', properties: { self: { $ref: '#' } }, required: ['self'] }, fill)
})

test('known formats look like what they are', () => {
  const schema = {
    type: 'object',
    properties: { at: { type: 'string', format: 'date-time' }, id: { type: 'string', format: 'uuid' } },
  }
  const { at, id } = schemaValue(schema, fill) as { at: string; id: string }
  assert.ok(Number.isFinite(Date.parse(at)))
  assert.match(id, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/)
})

// The service forwards schemas unchanged, and so does the real upstream: invalid ones are not refused here.
test('a contradictory schema still gets a value', () => {
  const hostile = { toString: 'not a function' }
  for (const schema of [
    { type: 'object', required: [hostile, 7, null, 'city'] },
    { type: 'string', format: hostile },
    { $ref: '#/%' },
    { type: hostile, enum: hostile, properties: hostile, items: hostile },
  ]) {
    assert.notEqual(JSON.stringify(schemaValue(schema, fill)), undefined)
  }
  assert.deepEqual(Object.keys(schemaValue({ required: [hostile, 'city'] }, fill) as object), ['city'])
})
