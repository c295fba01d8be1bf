import { isIPv6 } from 'node:net'
import { cutText, isObject, type JsonObject } from '../inference/parameter.ts'

/** The upstream's error, safe to show to a customer. */
export type Fault = { readonly code: string; readonly message: string; readonly param: string | undefined }

const messageCharactersMax = 500
const removed = '[removed]'
const codePattern = /^[a-z0-9_.-]{1,64}$/i

// The operator's addresses, files, credentials and account names: upstreams often quote them.
const secrets = new RegExp(
  [
    String.raw`\b[a-z][a-z0-9+.-]*://\S+`,
    String.raw`\bbearer\s+\S+`,
    String.raw`\b(?:sk|pk|rk)[-_][\w*-]{4,}`,
    String.raw`\b(?:org|proj|user|key|req|resp)[-_][a-z0-9]{12,}`,
    String.raw`\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b`,
    // Names of hosts that no public server has, and any name with a port.
    String.raw`\b(?:[a-z0-9-]+\.)+(?:internal|intranet|private|local|localdomain|localhost|lan|corp|home|svc|cluster)\b(?::\d+)?`,
    String.raw`\b(?:localhost|(?=[a-z-]*[\d.-])[a-z][a-z0-9.-]*[a-z0-9]):\d{2,5}\b`,
    // Files, but not a part of a word such as and/or.
    String.raw`(?<![\w/.:\])])(?:~|\.{1,2})?(?:/[\w.@+-]+){2,}/?`,
    String.raw`\b[a-z]:\\[^\s"']+`,
  ].join('|'),
  'gi',
)
const ipv6Like = /(?<![\w:])\[?([\da-f]*:[\da-f]*:[\da-f:.]*[\da-f])(?:%\w+)?(?:\]:\d+|\])?/gi
const keyPieceLength = 8
/** The ends of a removed piece: characters of a key that was cut, masked or encoded. */
const ends = /[\w+/=-]{0,4}\[removed\](?:(?:…|\.{3}|\*+)[\w-]*|[\w+/=-]{0,4})/g

/** What of a key may be in no message: any eight letters or digits of it in a row, also in base64. A shorter key only whole. */
export function piecesOf(key: string): readonly string[] {
  if (key === '') return []
  // Base64 has three forms, by the number of bytes before. Characters that also depend on bytes before or after are left out.
  const encoded = [0, 2, 3].map((dependent, before) => {
    const form = Buffer.from(`${' '.repeat(before)}${key}`)
      .toString('base64')
      .slice(dependent)
    return form.replace(/.=+$/, '')
  })
  return [...new Set([key, ...encoded].flatMap((form, index) => windowsOf(plain(form), index === 0)))]
}

function windowsOf(text: string, isWholeUsed: boolean): readonly string[] {
  if (text.length <= keyPieceLength) return isWholeUsed && text !== '' ? [text] : []
  return Array.from({ length: text.length - keyPieceLength + 1 }, (_, start) =>
    text.slice(start, start + keyPieceLength),
  )
}

/** Letters and digits, in lower case. */
function plain(text: string): string {
  return text.replaceAll(/[^\p{L}\p{N}]/gu, '').toLowerCase()
}

/** Removes words whatever their case and whatever stands between their letters: upstreams break, mask and quote them. */
function withoutWords(text: string, words: readonly string[]): string {
  const places = [...text.matchAll(/[\p{L}\p{N}]/gu)].flatMap(({ 0: letter, index }) =>
    letter
      .toLowerCase()
      .split('')
      .map(() => ({ from: index, to: index + letter.length })),
  )
  const letters = plain(text)
  const isHidden = new Uint8Array(text.length)
  for (const word of words.map(plain).filter((one) => one !== ''))
    for (let at = letters.indexOf(word); at !== -1; at = letters.indexOf(word, at + 1))
      isHidden.fill(1, places[at]!.from, places[at + word.length - 1]!.to)
  let shown = ''
  for (let at = 0; at < text.length; at += 1) {
    if (isHidden[at] === 0) shown += text[at]
    else if (at === 0 || isHidden[at - 1] === 0) shown += removed
  }
  return shown
}

/** The code when a provider's moderation refused the customer's input. */
export const flaggedFault = 'content_policy_violation'

/**
 * Parses an upstream's error: `{error: {code, message}}`, the same without nesting or inside an array, with a `type` instead of a code,
 * `{code, error: message}`, or with a list of details, as Google's and FastAPI's servers send it. The result always has a code, if need be
 * the given one, and a message.
 */
export function readFault(value: unknown, hidden: readonly string[], codeDefault = 'server_error'): Fault {
  const first: unknown = Array.isArray(value) ? value.find(isObject) : value
  const outer = isObject(first) ? first : {}
  const error = isObject(outer.error) ? outer.error : outer
  const flagged = flaggedFor(error)
  if (flagged !== undefined) {
    return { code: flaggedFault, message: scrubbed(`the input was flagged${flagged}.`, hidden), param: undefined }
  }
  const message = messageIn(error.message) ?? messageIn(error.detail) ?? messageIn(outer.error)
  return {
    code: [...detailCodes(error), error.code, error.type].find(isCode) ?? codeDefault,
    message: message === undefined ? '' : scrubbed(message, hidden),
    param: typeof error.param === 'string' ? error.param : undefined,
  }
}

/** The reasons of OpenRouter's moderation. Its own message names the provider and its model. */
function flaggedFor({ metadata }: JsonObject): string | undefined {
  if (!isObject(metadata) || !Array.isArray(metadata.reasons)) return undefined
  const reasons = metadata.reasons.slice(0, detailsMax).filter((reason) => typeof reason === 'string')
  return reasons.length === 0 ? '' : ` for ${reasons.join(', ')}`
}

/** Details are more exact: Google calls a wrong key an invalid argument, and FastAPI has one type for a whole list. */
function detailCodes({ details, detail, message }: JsonObject): readonly unknown[] {
  const lists = [details, detail, isObject(message) ? message.detail : undefined].filter(Array.isArray)
  return lists.flatMap((list: readonly unknown[]) =>
    list.slice(0, detailsMax).flatMap((item) => (isObject(item) ? [item.reason, item.type] : [])),
  )
}

const detailsMax = 4
const nestingMax = 4

/** The text of a message, or of the messages inside it. */
function messageIn(value: unknown, depth = 0): string | undefined {
  if (typeof value === 'string') return value === '' ? undefined : value
  if (depth === nestingMax) return undefined
  if (Array.isArray(value)) {
    const found = value.slice(0, detailsMax).flatMap((item) => messageIn(item, depth + 1) ?? [])
    return found.length === 0 ? undefined : found.join('; ')
  }
  if (!isObject(value)) return undefined
  return [value.message, value.msg, value.detail]
    .map((inner) => messageIn(inner, depth + 1))
    .find((inner) => inner !== undefined)
}

/** The upstream's text without operator data, on one line and with a bounded length. */
function scrubbed(text: string, hidden: readonly string[]): string {
  // Search only the part that can be shown, plus enough to recognize a word that begins there.
  let shown = text.slice(0, 2 * messageCharactersMax)
  shown = withoutWords(shown, hidden)
    .replaceAll(/[\p{Cc}\s]+/gu, ' ')
    .replaceAll(secrets, removed)
  shown = shown
    .replaceAll(ipv6Like, (found, address: string) => (isIPv6(address) ? removed : found))
    .replaceAll(ends, removed)
  return cutText(shown.toWellFormed(), messageCharactersMax).trim()
}

// An `error` event has its own name in the member that otherwise names the kind of error.
function isCode(value: unknown): value is string {
  return typeof value === 'string' && value !== 'error' && codePattern.test(value)
}
