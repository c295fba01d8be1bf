import { createHash, randomBytes } from 'node:crypto'
import { crc32 } from 'node:zlib'

const prefix = 'penny_'
export const managementPrefix = 'penny_mgmt_'
const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const randomLength = 34
const checksumLength = 6

/** `penny_`, 34 random base62 characters (over 200 bits) and a checksum of 6. */
export function createApiKey(): string {
  const secret = randomBase62(randomLength)
  return `${prefix}${secret}${checksum(secret)}`
}

/** Like an API key, with the prefix `penny_mgmt_`. Programs use it to manage an account over /api. */
export function createManagementKey(): string {
  const secret = randomBase62(randomLength)
  return `${managementPrefix}${secret}${checksum(secret)}`
}

const keyLength = prefix.length + randomLength + checksumLength

/**
 * Explains why this text cannot be an API key; undefined when it can be one. Needs no database. The message never repeats the text:
 * it may be a secret of another service.
 */
export function whyMalformed(key: string): string | undefined {
  if (key.startsWith(managementPrefix))
    return 'This is a management key, which works for /api only. Use an API key (penny_…) here; create one with POST /api/keys or in the dashboard.'
  if (!key.startsWith(prefix)) return `This is not an API key of this service: its keys begin with "${prefix}".`
  if (key.length !== keyLength)
    return `This API key has ${key.length} characters; a key has ${keyLength}. Copy the whole key.`
  const secret = key.slice(prefix.length, prefix.length + randomLength)
  if (/^penny_[0-9A-Za-z]{40}$/.test(key) && key.endsWith(checksum(secret))) return undefined
  return 'This API key has a typo. Copy it again from where you stored it.'
}

/** The same for a management key. */
export function whyMalformedManagementKey(key: string): string | undefined {
  const whole = managementPrefix.length + randomLength + checksumLength
  if (key.length !== whole)
    return `This management key has ${key.length} characters; a management key has ${whole}. Copy the whole key.`
  const secret = key.slice(managementPrefix.length, managementPrefix.length + randomLength)
  if (/^penny_mgmt_[0-9A-Za-z]{40}$/.test(key) && key.endsWith(checksum(secret))) return undefined
  return 'This management key has a typo. Copy it again from where you stored it.'
}

/** The database stores only this. A key has enough entropy that an unsalted hash resists a search. */
export function hashApiKey(key: string): Buffer {
  return createHash('sha256').update(key).digest()
}

/** The masked key. The whole key is shown once, at its creation. */
export function hintOf(key: string): string {
  return `${key.startsWith(managementPrefix) ? managementPrefix : prefix}…${key.slice(-4)}`
}

function checksum(secret: string): string {
  let value = crc32(`${prefix}${secret}`)
  let text = ''
  for (let index = 0; index < checksumLength; index += 1) {
    text = alphabet[value % 62] + text
    value = Math.floor(value / 62)
  }
  return text
}

// Bytes of 248 and more are dropped: modulo 62 they would make the first characters likelier than the others.
function randomBase62(length: number): string {
  let text = ''
  while (text.length < length) {
    for (const byte of randomBytes(length * 2)) if (byte < 248 && text.length < length) text += alphabet[byte % 62]
  }
  return text
}
