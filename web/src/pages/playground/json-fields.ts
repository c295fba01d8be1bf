// The two settings that are written as JSON: tools and the schema of the answer.

export type Parsed<Value> =
  | { readonly value: Value; readonly problem?: undefined }
  | { readonly value?: undefined; readonly problem: string }

type JsonObject = Readonly<Record<string, unknown>>

const namePattern = /^[\w-]{1,64}$/
const toolsMax = 128

/** A list of function definitions, or one; with or without the `{type, function}` around each. Empty text is no tools. */
export function parseTools(text: string): Parsed<readonly JsonObject[]> {
  if (text.trim() === '') return { value: [] }
  const parsed = parseJson(text)
  if (parsed.problem !== undefined) return parsed
  const entries = Array.isArray(parsed.value) ? parsed.value : [parsed.value]
  if (entries.length > toolsMax)
    return { problem: `There are ${entries.length} tools; at most ${toolsMax} are allowed.` }
  const tools: JsonObject[] = []
  const names = new Set<string>()
  for (const [index, entry] of entries.entries()) {
    const definition = definitionOf(entry)
    const place = `Tool ${index + 1}`
    if (definition === undefined) return { problem: `${place} must be a function definition, such as {"name": "…"}.` }
    const { name, parameters } = definition
    if (typeof name !== 'string' || !namePattern.test(name))
      return { problem: `${place} needs a "name" of up to 64 letters, digits, underscores or hyphens.` }
    if (names.has(name)) return { problem: `Two tools are named "${name}".` }
    if (parameters !== undefined && !isObject(parameters))
      return { problem: `The "parameters" of "${name}" must be a JSON schema object.` }
    names.add(name)
    tools.push({ type: 'function', function: definition })
  }
  return { value: tools }
}

function definitionOf(entry: unknown): JsonObject | undefined {
  if (!isObject(entry)) return undefined
  if (entry.function !== undefined) return isObject(entry.function) ? entry.function : undefined
  const { type: _, ...definition } = entry
  return definition
}

/** A JSON schema, or `{name, schema, strict}` as the API takes it. A schema without a name is called `answer`. */
export function parseSchema(text: string): Parsed<JsonObject> {
  const parsed = parseJson(text)
  if (parsed.problem !== undefined) return parsed
  if (!isObject(parsed.value)) return { problem: 'A JSON schema is an object, such as {"type": "object"}.' }
  const given = isObject(parsed.value.json_schema) ? parsed.value.json_schema : parsed.value
  if (given.schema === undefined) return checkSchema(given, { name: 'answer', schema: given })
  const { name = 'answer' } = given
  if (typeof name !== 'string' || !namePattern.test(name))
    return { problem: 'The "name" must be up to 64 letters, digits, underscores or hyphens.' }
  return checkSchema(given.schema, { ...given, name })
}

const schemaTypes = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null']

/** Reports only certain errors: the model's provider checks the complete rules. */
function checkSchema(schema: unknown, value: JsonObject): Parsed<JsonObject> {
  if (!isObject(schema)) return { problem: 'The "schema" must be an object, such as {"type": "object"}.' }
  const types = [schema.type ?? []].flat()
  const unknown = types.find((type) => !schemaTypes.includes(String(type)))
  if (unknown !== undefined)
    return { problem: `"type": ${JSON.stringify(unknown)} is not a JSON schema type. Use ${schemaTypes.join(', ')}.` }
  if (schema.properties !== undefined && !isObject(schema.properties))
    return { problem: 'The "properties" of the schema must be an object.' }
  return { value }
}

function parseJson(text: string): Parsed<unknown> {
  try {
    return { value: JSON.parse(text) as unknown }
  } catch (error) {
    return { problem: `This is not valid JSON: ${error instanceof Error ? error.message : String(error)}.` }
  }
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
