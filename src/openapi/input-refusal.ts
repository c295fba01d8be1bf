import type { z } from 'zod'
import { ServiceError } from '../errors.ts'
import { described, InvalidValueError, listed, MissingParameterError, wrongValue } from '../inference/parameter.ts'

type Issue = z.core.$ZodIssue
type Path = readonly PropertyKey[]

/**
 * Converts a schema error to an error in the chat API's format: parameter, received value, expected value. Reports the first
 * problem. The schema library's own messages are for programmers and are not shown.
 */
export function refusalOf({ issues: [first] }: z.ZodError, given: unknown): ServiceError {
  const issue = first!
  const { place, value } = follow(issue.path, given)
  if (issue.code === 'unrecognized_keys') {
    const param = joined(place, issue.keys[0]!).slice(0, nameLengthMax)
    return new ServiceError('unsupported_parameter', `\`${param}\` is not a known parameter. Leave it out.`, { param })
  }
  if (value === undefined) return new MissingParameterError(place)
  // Our own schema messages begin with "must".
  if (issue.message.startsWith('must ')) return wrong(place, value, issue.message)
  if (issue.code === 'too_big') return tooBig(issue, place, value)
  return wrong(place, value, `must be ${wanted(issue)}`)
}

/** A single value where a list is allowed has no index in its path. */
function follow(path: Path, given: unknown): { readonly place: string; readonly value: unknown } {
  return path.reduce<{ place: string; value: unknown }>(
    ({ place, value }, part) => {
      if (typeof part === 'number' && !Array.isArray(value)) return { place, value }
      return { place: joined(place, part), value: (value as Record<PropertyKey, unknown> | null | undefined)?.[part] }
    },
    { place: '', value: given },
  )
}

function joined(place: string, part: PropertyKey): string {
  if (typeof part === 'number') return `${place}[${part}]`
  return place === '' ? String(part) : `${place}.${String(part)}`
}

/** The refusal of a value that has the right shape and cannot be used here and now. */
export function unusable(param: string, problem: string): InvalidValueError {
  return new InvalidValueError(`\`${param}\` cannot be used: ${problem}.`, param)
}

function wrong(place: string, value: unknown, demand: string): InvalidValueError {
  const came = value === null ? 'null' : described(value)
  return new InvalidValueError(`\`${place}\` is ${came}; it ${demand}.`, place)
}

/** The beginning of a long text says nothing about its length. */
function tooBig(issue: Extract<Issue, { code: 'too_big' }>, place: string, value: unknown): InvalidValueError {
  const most = Number(issue.maximum)
  if (typeof value === 'string' && issue.origin === 'string') {
    return new InvalidValueError(
      `\`${place}\` has ${value.length} characters; the limit is ${most}. Send fewer.`,
      place,
    )
  }
  if (Array.isArray(value)) {
    return new InvalidValueError(`\`${place}\` has ${value.length} entries; the limit is ${most}. Send fewer.`, place)
  }
  return wrongValue(place, value, `at most ${most}`)
}

function wanted(issue: Issue): string {
  switch (issue.code) {
    case 'invalid_type':
      return types[issue.expected] ?? 'of another type'
    case 'invalid_value':
      return issue.values.length === 1 ? `\`${String(issue.values[0])}\`` : `one of ${listed(issue.values.map(String))}`
    case 'too_small':
      return issue.origin === 'string' ? 'a text that is not empty' : `at least ${Number(issue.minimum)}`
    case 'invalid_format':
      return formats[issue.format] ?? 'of another form'
    default:
      return 'something else'
  }
}

const types: Readonly<Record<string, string>> = {
  string: 'a string',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  object: 'an object',
  array: 'an array',
}

const formats: Readonly<Record<string, string>> = {
  uuid: 'a UUID such as 0190dea0-0000-7000-8000-000000000001',
  datetime: 'an instant such as 2026-11-15T12:00:00Z',
  date: 'a day such as 2026-11-15',
}

const nameLengthMax = 100
