import type { Hex } from './hex.ts'

// Documents are untrusted. Every field is read once, by name, with its format and bounds. Unknown fields are refused.

export type Fields = Readonly<Record<string, unknown>>

/** The file is not a receipt or a bundle of this version: it cannot be verified at all. */
export class InvalidReceiptError extends Error {
  readonly reason: string
  constructor(reason: string) {
    super(`Invalid receipt: ${reason}.`)
    this.name = 'InvalidReceiptError'
    this.reason = reason
  }
}

/** An object with all of `names`, perhaps some of `optional`, and nothing else. */
export function readFields(
  value: unknown,
  place: string,
  names: readonly string[],
  optional: readonly string[] = [],
): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new InvalidReceiptError(`${place} is not a JSON object`)
  }
  const unknown = Object.keys(value).find((name) => !names.includes(name) && !optional.includes(name))
  if (unknown !== undefined) throw new InvalidReceiptError(`${place} has the unknown field ${quoted(unknown)}`)
  const missing = names.find((name) => !Object.hasOwn(value, name))
  if (missing !== undefined) throw new InvalidReceiptError(`${place} has no field "${missing}"`)
  // Has no prototype, so that an absent field is undefined whatever its name.
  return Object.assign(Object.create(null), value) as Fields
}

export function readInteger(fields: Fields, name: string, min: bigint, max: bigint): bigint {
  const value = fields[name]
  // In one form only: no plus sign, no leading zeros, no "-0".
  if (typeof value !== 'string' || !/^(0|-?[1-9]\d{0,19})$/.test(value)) {
    throw new InvalidReceiptError(`"${name}" is not an integer written as text`)
  }
  const integer = BigInt(value)
  if (integer < min || integer > max) throw new InvalidReceiptError(`"${name}" is out of range`)
  return integer
}

export function readHex(fields: Fields, name: string, size: number): Hex {
  return asHex(fields[name], name, size)
}

export function readHashes(fields: Fields, name: string, countMax: number): readonly Hex[] {
  const value = fields[name]
  if (!Array.isArray(value)) throw new InvalidReceiptError(`"${name}" is not a list`)
  if (value.length > countMax) throw new InvalidReceiptError(`"${name}" has more than ${countMax} hashes`)
  return Array.from(value, (item) => asHex(item, name, 32))
}

export function readText(fields: Fields, name: string, bytesMax: number): string {
  const value = fields[name]
  if (typeof value !== 'string' || !value.isWellFormed()) throw new InvalidReceiptError(`"${name}" is not text`)
  // A character has at most three bytes: most texts need no counting.
  if (value.length * 3 > bytesMax && new TextEncoder().encode(value).length > bytesMax) {
    throw new InvalidReceiptError(`"${name}" is longer than ${bytesMax} bytes`)
  }
  return value
}

function asHex(value: unknown, name: string, size: number): Hex {
  if (typeof value !== 'string' || value.length !== 2 + 2 * size || !/^0x[0-9a-f]*$/.test(value)) {
    throw new InvalidReceiptError(`"${name}" is not ${size} bytes in lower-case hex`)
  }
  return value as Hex
}

/** A name from the file, short and without control characters: it may be printed in a terminal. */
function quoted(name: string): string {
  return JSON.stringify(name.slice(0, 40).toWellFormed())
}
