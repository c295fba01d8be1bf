import { createHash, randomBytes } from 'node:crypto'
import { crc32 } from 'node:zlib'

const prefix = 'penny_'
export const managementPrefix = 'penny_mgmt_'
const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const randomLength = 34
const checksumLength = 6

/** `penny_`, 34 random base62 characters (over 200 bits) and 6 of a checksum. */
export function createApiKey(): string {
  const secret = randomBase62(randomLength)
  return `${prefix}${secret}${checksum(secret)}`
}

/** `penny_mgmt_` and the same: for programs that manage an account over /api. */
export function createManagementKey(): string {
  const secret = randomBase62(randomLength)
  return `${managementPrefix}${secret}${checksum(secret)}`
}

const keyLength = prefix.length + randomLength + checksumLength

/**
 * Why this cannot be a key, found without a database look-up; undefined when it can be one. The text never repeats what was sent:
 * it may be a key of another service.
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

/** Why this cannot be a management key; undefined when it can be one. */
export function whyMalformedManagementKey(key: string): string | undefined {
  const whole = managementPrefix.length + randomLength + checksumLength
  if (key.length !== whole)
    return `This management key has ${key.length} characters; a management key has ${whole}. Copy the whole key.`
  const secret = key.slice(managementPrefix.length, managementPrefix.length + randomLength)
  if (/^penny_mgmt_[0-9A-Za-z]{40}$/.test(key) && key.endsWith(checksum(secret))) return undefined
  return 'This management key has a typo. Copy it again from where you stored it.'
}

/** What is stored: the key has enough entropy that a plain hash cannot be searched. */
export function hashApiKey(key: string): Buffer {
  return createHash('sha256').update(key).digest()
}

/** What is shown after the one time a key is shown whole. */
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

// Bytes of 248 and more are dropped: taking them modulo 62 would make the first characters likelier than the others.
function randomBase62(length: number): string {
  let text = ''
  while (text.length < length) {
    for (const byte of randomBytes(length * 2)) if (byte < 248 && text.length < length) text += alphabet[byte % 62]
  }
  return text
}
