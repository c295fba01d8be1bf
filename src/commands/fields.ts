import { z } from 'zod'
import type { Contract } from '../openapi/contract.ts'
import { CallRefusedError } from './client.ts'
import { CommandError } from './command.ts'

type Shape = { readonly type?: string; readonly anyOf?: readonly Shape[]; readonly items?: Shape }
export type InputField = Shape & { readonly description?: string; readonly enum?: readonly unknown[] }

/** The fields of a schema by name, and which of them are required. */
export function fieldsOf(schema: z.ZodType | undefined) {
  if (schema === undefined) return { properties: {}, required: [] }
  const { properties = {}, required = [] } = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' })
  return { properties: properties as Readonly<Record<string, InputField>>, required: required as readonly string[] }
}

/** The value that a text of the command line means for a field. `none` is null; `all` is an empty list: no restriction. */
export function readField(name: string, field: InputField, text: string): unknown {
  const types = [field, ...(field.anyOf ?? [])].map(({ type }) => type)
  if (text === 'none' && types.includes('null')) return null
  if (types.includes('array')) return text === 'all' ? [] : text.split(',').map((item) => item.trim())
  if (types.includes('boolean')) {
    if (text === 'on' || text === 'true') return true
    if (text === 'off' || text === 'false') return false
    throw new CommandError(`--${name} must be on or off. Got "${text}".`, 2)
  }
  if (types.includes('integer') || (types.includes('number') && !types.includes('string'))) return Number(text)
  if (!types.includes('object')) return text
  try {
    return JSON.parse(text)
  } catch {
    throw new CommandError(`--${name} must be JSON. Got "${text}".`, 2)
  }
}

/** The body that options mean, by the names of their fields. */
export function readBody(
  { body }: Contract,
  options: Readonly<Record<string, unknown>>,
  fieldOf: Readonly<Record<string, string>>,
): Record<string, unknown> {
  const { properties } = fieldsOf(body)
  return Object.fromEntries(
    Object.entries(fieldOf).flatMap(([option, field]) =>
      typeof options[option] === 'string' ? [[field, readField(option, properties[field] ?? {}, options[option])]] : [],
    ),
  )
}

/** The answer of a call. A refusal of a field names the option that it came from. */
export async function namingOptions<Answer>(
  fieldOf: Readonly<Record<string, string>>,
  answer: Promise<Answer>,
): Promise<Answer> {
  return answer.catch((error: unknown) => {
    const param = error instanceof CallRefusedError ? error.param : undefined
    const [option] = Object.entries(fieldOf).find(([, field]) => field === param) ?? []
    throw option === undefined ? error : new CommandError(`--${option}: ${(error as Error).message}`, 2)
  })
}
