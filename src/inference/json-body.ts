import { type ErrorDetails, ServiceError } from '../errors.ts'
import { isObject, type JsonObject } from './parameter.ts'

const nestingMax = 64
/** Counts names and values. `JSON.parse` takes half a second for a million of them, and blocks the event loop for all customers. */
const entriesMax = 150_000
/** Names that we do not know are ignored, but parsing thousands of them takes milliseconds that are not charged. */
const membersMax = 1_000

// Stateless between calls with a whole buffer. Drops a byte order mark, as JSON clients expect.
const utf8 = new TextDecoder('utf-8', { fatal: true })

const quote = 0x22
const backslash = 0x5c
// `[` and `{` differ in one bit, and so do `]` and `}`: with that bit set, two comparisons recognize all four.
const bracketBit = 0x20
const opening = 0x7b
const closing = 0x7d
const comma = 0x2c
const colon = 0x3a

/**
 * Parses the request body as a JSON object. A `__proto__` member is an ordinary own member, as with `JSON.parse`.
 * @throws {InvalidJsonError} for anything else, with the position of the mistake unless finding it is expensive.
 */
export function parseJsonBody(bytes: Uint8Array): JsonObject {
  if (bytes.length === 0) throw new InvalidJsonError('The request body is empty. Send a JSON object.')
  checkStructure(bytes)
  const value = parse(decode(bytes))
  if (!isObject(value)) {
    const got = Array.isArray(value) ? 'an array' : value === null ? 'null' : `a ${typeof value}`
    throw new InvalidJsonError(`The request body is ${got}. Send a JSON object.`)
  }
  return value
}

function decode(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes)
  } catch (cause) {
    throw new InvalidJsonError('The request body is not valid UTF-8. Encode it as UTF-8.', { cause })
  }
}

/**
 * `JSON.parse` and every function that walks its result recurse: a megabyte of `[` would overflow the stack. Scanning bytes is
 * enough, because no byte of a multi-byte character looks like a bracket or a quote.
 */
function checkStructure(bytes: Uint8Array): void {
  let depth = 0
  // Each name has a colon behind it, and each value a comma or bracket before it.
  let entries = 0
  let members = 0
  for (let index = 0; index < bytes.length; index += 1) {
    const byte = bytes[index]!
    if (byte === quote) index = endOfString(bytes, index + 1)
    else if (byte === comma || byte === colon) {
      entries += 1
      if (byte === colon && depth === 1) members += 1
    } else if ((byte | bracketBit) === opening) {
      depth += 1
      entries += 1
      if (depth > nestingMax) {
        throw new InvalidJsonError(
          `The request body is nested deeper than ${nestingMax} levels at byte ${index}. Flatten it.`,
        )
      }
    } else if ((byte | bracketBit) === closing) depth -= 1
  }
  if (members > membersMax) {
    throw new InvalidJsonError(`The request has ${members} parameters; the limit is ${membersMax}. Send fewer.`)
  }
  if (entries <= entriesMax) return
  throw new InvalidJsonError(
    `The request body has ${entries} names and values; the limit is ${entriesMax}. Send fewer.`,
  )
}

/** The position of the closing quote of a string, or of the end of the body. */
function endOfString(bytes: Uint8Array, from: number): number {
  let at = from
  while (at < bytes.length) {
    // Short strings byte by byte, long ones from quote to quote: each is several times as fast there.
    for (const near = at + 32; at < near; at += 1) {
      if (bytes[at] === quote) return at
      if (bytes[at] === backslash) at += 1
    }
    const next = bytes.indexOf(quote, at)
    if (next === -1) break
    let escapes = next
    while (escapes > at && bytes[escapes - 1] === backslash) escapes -= 1
    if ((next - escapes) % 2 === 0) return next
    at = next + 1
  }
  return bytes.length
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new InvalidJsonError(`The request body is not valid JSON${describeMistake(text, cause)}.`, { cause })
  }
}

function describeMistake(text: string, cause: unknown): string {
  const position = errorPosition(text, cause)
  if (position === undefined) return ''
  const got =
    position < text.length ? `${JSON.stringify(text.charAt(position))} is not expected` : 'the text ends too early'
  return `: ${got} at position ${position}`
}

/** Reading a megabyte again takes a fifth of a second and blocks the event loop for all requests. */
const readAgainCharactersMax = 64 * 1024

/**
 * V8 reports the position of most mistakes. When it only quotes the token, a second pass finds the position, but only in a short
 * text.
 */
function errorPosition(text: string, cause: unknown): number | undefined {
  const named = /at position (\d+)/.exec(String(cause))
  if (named !== null) return Number(named[1])
  return text.length > readAgainCharactersMax ? undefined : Math.min(stopOf(text, 0).position, text.length)
}

type Stop = { readonly position: number; readonly isError: boolean }

const scalar = /"(?:[^"\\]|\\.)*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y

/** Where reading one value stops: after it, or at the first invalid token. The depth was already bounded. */
function stopOf(text: string, from: number): Stop {
  const at = skipSpace(text, from)
  const first = text.charAt(at)
  if (first === '{' || first === '[') return stopOfMembers(text, at + 1, first === '{')
  scalar.lastIndex = at
  return scalar.test(text) ? { position: scalar.lastIndex, isError: false } : { position: at, isError: true }
}

function stopOfMembers(text: string, from: number, keyed: boolean): Stop {
  const last = keyed ? '}' : ']'
  let at = skipSpace(text, from)
  if (text.charAt(at) === last) return { position: at + 1, isError: false }
  for (;;) {
    if (keyed) {
      const key = stopOf(text, at)
      if (key.isError || text.charAt(at) !== '"') return { position: at, isError: true }
      at = skipSpace(text, key.position)
      if (text.charAt(at) !== ':') return { position: at, isError: true }
      at += 1
    }
    const value = stopOf(text, at)
    if (value.isError) return value
    at = skipSpace(text, value.position)
    if (text.charAt(at) === last) return { position: at + 1, isError: false }
    if (text.charAt(at) !== ',') return { position: at, isError: true }
    at = skipSpace(text, at + 1)
  }
}

function skipSpace(text: string, from: number): number {
  let at = from
  while (at < text.length && ' \t\n\r'.includes(text.charAt(at))) at += 1
  return at
}

export class InvalidJsonError extends ServiceError {
  constructor(message: string, details?: ErrorDetails) {
    super('invalid_json', message, details)
  }
}
