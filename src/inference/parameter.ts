import { ServiceError } from '../errors.ts'

/** A JSON object as it came from outside: nothing about its members is known yet. */
export type JsonObject = Readonly<Record<string, unknown>>

/** Reads one value found at a place such as `tools[0].function.name`, or refuses it by naming that place. */
export type Reader<T> = (value: unknown, place: string) => T

/** Functions, schemas and our own tools share this alphabet; the upstream refuses any other name. */
const namePattern = /^[A-Za-z0-9_-]{1,64}$/

const quotedCharactersMax = 40
const schemaDepthMax = 64

/** Clients send `null` for parameters they do not mean to set, so null is absent everywhere. */
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

/** Half a surrogate pair is not text: it cannot be encoded as UTF-8, so it is replaced here, once, before it is priced. */
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

/** A reader of one of a few words. */
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
 * A JSON Schema, copied: what goes upstream is what was read and priced, whatever happens to the body afterwards.
 * `Object.fromEntries` defines members rather than assigning them, so a `__proto__` key stays a plain key.
 */
export function readSchema(value: unknown, place: string): JsonObject {
  return copyMembers(readObject(value, place), place, 1)
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The first characters of a text, counted by code point: an emoji is one character, and is never cut in half. */
export function cutText(text: string, charactersMax: number): string {
  // A code point is one or two units: shorter texts need no counting, and of longer ones only the beginning is read.
  if (text.length <= charactersMax) return text
  return Array.from(text.slice(0, 2 * charactersMax))
    .slice(0, charactersMax)
    .join('')
}

/** The refusal of a value: what came, and what is accepted. */
export function wrongValue(place: string, value: unknown, expected: string): InvalidValueError {
  return new InvalidValueError(`\`${place}\` is ${described(value)}; it must be ${expected}.`, place)
}

/** A value in words short enough for a message, whatever was sent. */
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
  // JSON can spell numbers that a double cannot hold (1e400); sent on, they would silently become null.
  if (typeof value === 'number' && !Number.isFinite(value)) throw wrongValue(place, value, 'made of finite numbers')
  if (Array.isArray(value)) return value.map((entry) => copyValue(entry, place, depth + 1))
  return isObject(value) ? copyMembers(value, place, depth) : value
}

export class InvalidValueError extends ServiceError {
  readonly code = 'invalid_value'
  constructor(message: string, param?: string) {
    super(message, { param })
  }
}

export class MissingParameterError extends ServiceError {
  readonly code = 'missing_required_parameter'
  constructor(param: string, advice = 'Add it to the request.') {
    super(`\`${param}\` is required but was not sent. ${advice}`, { param })
  }
}

export class UnsupportedParameterError extends ServiceError {
  readonly code = 'unsupported_parameter'
  constructor(message: string, param: string) {
    super(message, { param })
  }
}

export class UnsupportedContentError extends ServiceError {
  readonly code = 'unsupported_content'
  constructor(type: string, param: string) {
    super(`\`${param}\` is ${quoted(type)}; only text is accepted here. Send the part as {"type":"text","text":"…"}.`, {
      param,
    })
  }
}
