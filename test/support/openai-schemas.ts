import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'

/** What of a value the reference API's public schema does not allow; nothing when it is valid. */
export type Validator = (value: unknown) => readonly string[]

/** Validators of everything a client can be answered under /v1, made from the public schemas beside the repository. */
export type OpenAiValidators = {
  readonly completion: Validator
  readonly chunk: Validator
  readonly error: Validator
  readonly modelList: Validator
  readonly model: Validator
}

const schemasFile = fileURLToPath(new URL('../../../shared/data/openai-schemas.json', import.meta.url))

export function loadOpenAiValidators(): OpenAiValidators {
  const { components } = JSON.parse(readFileSync(schemasFile, 'utf8')) as { components: object }
  // Not strict: the document has members, such as deprecated, that are not of JSON Schema.
  const ajv = new Ajv2020({ strict: false, allErrors: true })
  addFormats.default(ajv)
  ajv.addFormat('unixtime', true)
  ajv.addSchema({ $id: 'openai', components: withoutNullable(components) })
  const validatorOf = (name: string): Validator => {
    const validate = ajv.compile({ $ref: `openai#/components/schemas/${name}` })
    return (value) =>
      validate(value) ? [] : validate.errors!.map(({ instancePath, message }) => `${name}${instancePath} ${message}`)
  }
  return {
    completion: validatorOf('CreateChatCompletionResponse'),
    chunk: validatorOf('CreateChatCompletionStreamResponse'),
    error: validatorOf('ErrorResponse'),
    modelList: validatorOf('ListModelsResponse'),
    model: validatorOf('Model'),
  }
}

/** The document still says `nullable` in places, as OpenAPI 3.0 did; JSON Schema has an alternative for that. */
function withoutNullable(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withoutNullable)
  if (typeof schema !== 'object' || schema === null) return schema
  const { nullable, ...rest } = schema as Record<string, unknown>
  const plain = Object.fromEntries(Object.entries(rest).map(([name, member]) => [name, withoutNullable(member)]))
  return nullable === true ? { anyOf: [plain, { type: 'null' }] } : plain
}
