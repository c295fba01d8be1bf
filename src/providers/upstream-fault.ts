import { cutText, isObject } from '../inference/parameter.ts'

/** The upstream's error, safe to show to a customer. */
export type Fault = { readonly code: string; readonly message: string; readonly param: string | undefined }

const messageCharactersMax = 500
const removed = '[removed]'
const codePattern = /^[a-z0-9_.-]{1,64}$/i

// The operator's addresses, credentials and account names: upstreams often quote them.
const secrets = new RegExp(
  [
    String.raw`\b[a-z][a-z0-9+.-]*://\S+`,
    String.raw`\bbearer\s+\S+`,
    String.raw`\b(?:sk|pk|rk)[-_][\w*-]{4,}`,
    String.raw`\b(?:org|proj|user|key|req|resp)[-_][a-z0-9]{12,}`,
    String.raw`\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b`,
  ].join('|'),
  'gi',
)

/**
 * Parses an upstream's error: `{error: {code, message}}`, the same without nesting, with a `type` instead of a code, or `{error: message}`.
 * The result always has a code and a message.
 */
export function readFault(value: unknown, hidden: readonly string[]): Fault {
  const outer = isObject(value) ? value : {}
  const error = isObject(outer.error) ? outer.error : outer
  const message = error.message ?? outer.error
  const code = [error.code, error.type].find(isCode) ?? 'server_error'
  return {
    code,
    message: typeof message === 'string' ? scrubbed(message, hidden) : '',
    param: typeof error.param === 'string' ? error.param : undefined,
  }
}

/** The upstream's text without operator data, on one line and with a bounded length. */
function scrubbed(text: string, hidden: readonly string[]): string {
  // Search only the part that can be shown, plus enough to recognize a word that begins there.
  let shown = text.slice(0, 2 * messageCharactersMax)
  for (const word of hidden) shown = shown.replaceAll(word, removed)
  shown = shown.replaceAll(/[\p{Cc}\s]+/gu, ' ').replaceAll(secrets, removed)
  return cutText(shown.toWellFormed(), messageCharactersMax).trim()
}

// An `error` event has its own name in the member that otherwise names the kind of error.
function isCode(value: unknown): value is string {
  return typeof value === 'string' && value !== 'error' && codePattern.test(value)
}
