import { type Fields, isFields } from './request.ts'

/** Text for a string whose schema does not determine it. `name` is the nearest property. */
export type Fill = (name: string, format: string) => string

/** Beyond this depth or this number of values, only required values are made: schemas may recurse. */
const depthMax = 6
const valuesMax = 2_000
/** A schema that requires itself has no finite value; it is cut off here. */
const nestingMax = 64
const itemsMax = 1_000
const lengthMax = 100_000

type Place = {
  readonly root: unknown
  readonly fill: Fill
  readonly name: string
  readonly depth: number
  /** Differs between the items of an array, so that they are unique. */
  readonly variant: number
  readonly made: { count: number }
}

/** A deterministic value that satisfies a JSON schema (without `pattern`, `not`, `if`). */
export function schemaValue(schema: unknown, fill: Fill): unknown {
  return valueAt(schema, { root: schema, fill, name: '', depth: 0, variant: 0, made: { count: 0 } })
}

function valueAt(schema: unknown, place: Place): unknown {
  place.made.count += 1
  if (schema === false || place.depth > nestingMax) return null
  const flat = flatten(isFields(schema) ? schema : {}, place)
  if (flat.const !== undefined) return flat.const
  const choices = flat.enum
  if (Array.isArray(choices) && choices.length > 0) return choices[place.variant % choices.length]
  switch (typeOf(flat, isTight(place))) {
    case 'object':
      return objectValue(flat, place)
    case 'array':
      return arrayValue(flat, place)
    case 'integer':
      return numberValue(flat, 1, place.variant)
    case 'number':
      return numberValue(flat, undefined, place.variant)
    case 'boolean':
      return place.variant % 2 === 0
    case 'null':
      return null
    default:
      return stringValue(flat, place)
  }
}

function isTight(place: Place): boolean {
  return place.depth > depthMax || place.made.count > valuesMax
}

/** Merges references and combinations into one plain schema, one keyword at a time. */
function flatten(schema: Fields, place: Place): Fields {
  let current = schema
  for (let step = 0; step < nestingMax; step += 1) {
    const { $ref: reference, allOf, anyOf, oneOf, ...plain } = current
    const alternatives = asArray(anyOf ?? oneOf)
    if (typeof reference === 'string') {
      current = merge({ ...current, $ref: undefined }, resolve(place.root, reference))
    } else if (allOf !== undefined) {
      current = asArray(allOf).reduce<Fields>(merge, { ...current, allOf: undefined })
    } else if (alternatives.length > 0) {
      current = merge(plain, pick(alternatives, place))
    } else {
      return plain
    }
  }
  return {}
}

function merge(base: Fields, addition: unknown): Fields {
  if (!isFields(addition)) return base
  const both = [base, addition]
  return {
    ...base,
    ...addition,
    ...(both.some((schema) => isFields(schema.properties)) && {
      properties: Object.fromEntries(both.flatMap((schema) => Object.entries(asFields(schema.properties)))),
    }),
    ...(both.some((schema) => Array.isArray(schema.required)) && {
      required: [...new Set(both.flatMap((schema) => asArray(schema.required)))],
    }),
  }
}

function resolve(root: unknown, reference: string): unknown {
  if (!reference.startsWith('#')) return {}
  const keys = decoded(reference.slice(1)).split('/').slice(1)
  return keys.reduce<unknown>((node, key) => {
    const name = key.replaceAll('~1', '/').replaceAll('~0', '~')
    return typeof node === 'object' && node !== null && Object.hasOwn(node, name) ? (node as Fields)[name] : undefined
  }, root)
}

/** A customer's reference may not be a valid URI. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** The first alternative that is not null; when limits are reached, the smallest one. */
function pick(alternatives: readonly unknown[], place: Place): unknown {
  const ranks = alternatives.map((alternative): number => {
    const schema = asFields(
      isFields(alternative) && typeof alternative.$ref === 'string'
        ? resolve(place.root, alternative.$ref)
        : alternative,
    )
    const type = typeOf(schema, true)
    if (type === 'null') return isTight(place) ? 0 : 9
    if (!isTight(place)) return 1
    return type === 'object' ? 3 : type === 'array' ? 2 : 1
  })
  return alternatives[ranks.indexOf(Math.min(...ranks))]
}

function typeOf(schema: Fields, tight: boolean): unknown {
  const { type } = schema
  if (Array.isArray(type))
    return tight && type.includes('null') ? 'null' : (type.find((name) => name !== 'null') ?? 'null')
  if (type !== undefined) return type
  if (schema.properties !== undefined || schema.required !== undefined) return 'object'
  if (schema.items !== undefined || schema.prefixItems !== undefined) return 'array'
  const numeric = ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf']
  return numeric.some((keyword) => schema[keyword] !== undefined) ? 'number' : 'string'
}

function objectValue(schema: Fields, place: Place): Fields {
  const properties = asFields(schema.properties)
  const required = asArray(schema.required).filter((name) => typeof name === 'string')
  const names = new Set(isTight(place) ? required : [...Object.keys(properties), ...required])
  const fewest = Math.min(asNumber(schema.minProperties) ?? 0, itemsMax)
  for (let index = 1; names.size < fewest; index += 1) names.add(`property${index}`)
  const other = schema.additionalProperties ?? {}
  const entries = [...names].map((name) => {
    const property = Object.hasOwn(properties, name) ? properties[name] : other
    return [name, valueAt(property, { ...place, name, depth: place.depth + 1 })]
  })
  return Object.fromEntries(entries)
}

function arrayValue(schema: Fields, place: Place): unknown[] {
  const tuple = asArray(schema.prefixItems)
  const fewest = Math.max(asNumber(schema.minItems) ?? 0, isTight(place) ? 0 : Math.max(1, tuple.length))
  const length = Math.min(fewest, asNumber(schema.maxItems) ?? itemsMax, itemsMax)
  return Array.from({ length }, (_, index) =>
    valueAt(tuple[index] ?? schema.items, { ...place, depth: place.depth + 1, variant: index }),
  )
}

function numberValue(schema: Fields, wholeStep: number | undefined, variant: number): number {
  const [minimum, above] = [asNumber(schema.minimum), asNumber(schema.exclusiveMinimum)]
  const [maximum, below] = [asNumber(schema.maximum), asNumber(schema.exclusiveMaximum)]
  const lowest = Math.max(minimum ?? -Infinity, above ?? -Infinity)
  const highest = Math.min(maximum ?? Infinity, below ?? Infinity)
  const step = asNumber(schema.multipleOf) ?? wholeStep
  if (step === undefined) {
    if (lowest > -Infinity && highest < Infinity) return lowest + ((highest - lowest) * (variant + 1)) / (variant + 2)
    if (highest < Infinity) return highest - 1 - variant
    return (lowest > -Infinity ? lowest : 0) + 1 + variant
  }
  const first = above === lowest ? Math.floor(lowest / step) + 1 : Math.ceil(lowest / step)
  const last = below === highest ? Math.ceil(highest / step) - 1 : Math.floor(highest / step)
  const start = first > -Infinity ? first : Math.min(1, last)
  // Twelve digits, so that 3 × 0.1 is 0.3.
  return Number((Math.min(start + variant, last) * step).toPrecision(12))
}

const formats: Readonly<Record<string, string>> = {
  'date-time': '2026-01-02T03:04:05Z',
  date: '2026-01-02',
  time: '03:04:05Z',
  duration: 'P1D',
  email: 'sandbox@example.com',
  hostname: 'example.com',
  ipv4: '192.0.2.1',
  ipv6: '2001:db8::1',
  uuid: '00000000-0000-4000-8000-000000000000',
}

function stringValue(schema: Fields, place: Place): string {
  const format = typeof schema.format === 'string' ? schema.format : ''
  if (Object.hasOwn(formats, format)) return formats[format]!
  const text = place.fill(place.name, format) + (place.variant > 0 ? ` ${place.variant + 1}` : '')
  const shortest = Math.min(asNumber(schema.minLength) ?? 0, lengthMax)
  // A schema counts characters, not UTF-16 units.
  const characters = [...text.padEnd(shortest + text.length - [...text].length, '.')]
  return characters.slice(0, asNumber(schema.maxLength) ?? lengthMax).join('')
}

function asFields(value: unknown): Fields {
  return isFields(value) ? value : {}
}

function asArray(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

function asNumber(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined
}
