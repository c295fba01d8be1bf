import { ServiceError } from '../errors.ts'

/** An untrusted JSON object: its members are not validated yet. */
export type JsonObject = Readonly<Record<string, unknown>>

/** Parses the value at a place such as `tools[0].function.name`. Throws an error that names the place. */
export type Reader<T> = (value: unknown, place: string) => T

/** Function names, schema names and our own tools use this alphabet; the upstream refuses other names. */
const namePattern = /^[A-Za-z0-9_-]{1,64}$/

const quotedCharactersMax = 40
const schemaDepthMax = 64

/** Clients send `null` for parameters that they do not want to set, so null means absent everywhere. */
export function isAbsent(value: unknown): value is null | undefined {
  return value === null || value === undefined
}

export function optional<T>(value: unknown, place: string, read: Reader<T>): T | undefined {
  return isAbsent(value) ? undefined : read(value, place)
}

export function required<T>(value: unknown, place: string, read: Reader<T>): T {
  if (isAbsent(value)) throw new MissingParameterError(place)
  return read(value, place)
}

export function readObject(value: unknown, place: string): JsonObject {
  if (!isObject(value)) throw wrongValue(place, value, 'an object')
  return value
}

export function readBoolean(value: unknown, place: string): boolean {
  if (typeof value !== 'boolean') throw wrongValue(place, value, 'true or false')
  return value
}

/** Replaces lone surrogates, which UTF-8 cannot encode. Done once, here, before the text is priced. */
export function readString(value: unknown, place: string): string {
  if (typeof value !== 'string') throw wrongValue(place, value, 'a string')
  return value.toWellFormed()
}

export function isName(text: string): boolean {
  return namePattern.test(text)
}

export function readName(value: unknown, place: string): string {
  if (typeof value !== 'string' || !isName(value)) {
    throw wrongValue(place, value, 'a string of 1 to 64 letters, digits, underscores or hyphens')
  }
  return value
}

/** A reader that accepts one of the given words. */
export function oneOf<const Word extends string>(words: readonly Word[]): Reader<Word> {
  return (value, place) => {
    const word = words.find((known) => known === value)
    if (word === undefined) throw wrongValue(place, value, `one of ${listed(words)}`)
    return word
  }
}

export function readArray(value: unknown, place: string, countMax: number): readonly unknown[] {
  if (!Array.isArray(value)) throw wrongValue(place, value, 'an array')
  if (value.length > countMax) {
    throw new InvalidValueError(
      `\`${place}\` has ${value.length} entries; the limit is ${countMax}. Send fewer.`,
      place,
    )
  }
  return value
}

/**
 * Copies a JSON Schema, so that later changes to the body cannot change what is priced and sent upstream. `Object.fromEntries`
 * defines members instead of assigning them, so a `__proto__` key stays a plain key.
 */
export function readSchema(value: unknown, place: string): JsonObject {
  return copyMembers(readObject(value, place), place, 1)
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The first characters of a text, counted in code points: an emoji is one character and is never split. */
export function cutText(text: string, charactersMax: number): string {
  // A code point is one or two units: shorter texts need no counting, and only the beginning of longer ones is read.
  if (text.length <= charactersMax) return text
  return Array.from(text.slice(0, 2 * charactersMax))
    .slice(0, charactersMax)
    .join('')
}

/** The error for an invalid value: what was sent, and what is accepted. */
export function wrongValue(place: string, value: unknown, expected: string): InvalidValueError {
  return new InvalidValueError(`\`${place}\` is ${described(value)}; it must be ${expected}.`, place)
}

/** Describes any value briefly enough for a message. */
export function described(value: unknown): string {
  if (typeof value === 'string') return quoted(value)
  if (Array.isArray(value)) return `an array of ${value.length}`
  if (isAbsent(value)) return 'absent'
  return typeof value === 'object' ? 'an object' : String(value)
}

export function quoted(text: string): string {
  const shown = cutText(text, quotedCharactersMax)
  return JSON.stringify(shown === text ? text : `${shown}…`)
}

export function listed(words: readonly string[]): string {
  return words.map((word) => `\`${word}\``).join(', ')
}

function copyMembers(source: JsonObject, place: string, depth: number): JsonObject {
  return Object.fromEntries(
    Object.entries(source).map(([key, member]) => [key.toWellFormed(), copyValue(member, place, depth + 1)]),
  )
}

function copyValue(value: unknown, place: string, depth: number): unknown {
  if (depth > schemaDepthMax) {
    throw new InvalidValueError(`\`${place}\` is nested deeper than ${schemaDepthMax} levels. Flatten it.`, place)
  }
  if (typeof value === 'string') return value.toWellFormed()
  // JSON allows numbers that a double cannot hold (1e400). Sent on, they would silently become null.
  if (typeof value === 'number' && !Number.isFinite(value)) throw wrongValue(place, value, 'made of finite numbers')
  if (Array.isArray(value)) return value.map((entry) => copyValue(entry, place, depth + 1))
  return isObject(value) ? copyMembers(value, place, depth) : value
}

export class InvalidValueError extends ServiceError {
  constructor(message: string, param?: string) {
    super('invalid_value', message, { param })
  }
}

export class MissingParameterError extends ServiceError {
  constructor(param: string, advice = 'Add it to the request.') {
    super('missing_required_parameter', `\`${param}\` is required but was not sent. ${advice}`, { param })
  }
}

export class UnsupportedParameterError extends ServiceError {
  constructor(message: string, param: string) {
    super('unsupported_parameter', message, { param })
  }
}

export class UnsupportedContentError extends ServiceError {
  constructor(type: string, param: string) {
    super(
      'unsupported_content',
      `\`${param}\` is ${quoted(type)}; only text is accepted here. Send the part as {"type":"text","text":"…"}.`,
      {
        param,
      },
    )
  }
}
