import { responseFormatTypes } from './chat-parameters.ts'
import {
  isAbsent,
  type JsonObject,
  oneOf,
  optional,
  readBoolean,
  readName,
  readObject,
  readSchema,
  readString,
  required,
} from './parameter.ts'

export type ResponseFormat =
  | { readonly type: 'text' }
  | { readonly type: 'json_object' }
  | {
      readonly type: 'json_schema'
      readonly name: string
      readonly description?: string | undefined
      readonly schema?: JsonObject | undefined
      readonly strict: boolean
    }

const readType = oneOf(responseFormatTypes)

export function parseResponseFormat(value: unknown): ResponseFormat {
  if (isAbsent(value)) return { type: 'text' }
  const format = readObject(value, 'response_format')
  const type = required(format.type, 'response_format.type', readType)
  if (type !== 'json_schema') return { type }
  const place = 'response_format.json_schema'
  const asked = required(format.json_schema, place, readObject)
  return {
    type,
    name: required(asked.name, `${place}.name`, readName),
    description: optional(asked.description, `${place}.description`, readString),
    schema: optional(asked.schema, `${place}.schema`, readSchema),
    strict: optional(asked.strict, `${place}.strict`, readBoolean) ?? false,
  }
}
