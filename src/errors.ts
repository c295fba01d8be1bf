/**
 * Every refusal a customer can meet has a permanent code. The list is closed: a new code does not compile
 * until `http/error-response.ts` gives it a status.
 */
export const errorCodes = [
  'invalid_json',
  'invalid_value',
  'missing_required_parameter',
  'unsupported_parameter',
  'unsupported_content',
  'context_length_exceeded',
  'web_search_unavailable',
  'invalid_api_key',
  'api_key_expired',
  'api_key_revoked',
  'account_suspended',
  'model_not_allowed',
  'web_tools_not_allowed',
  'quote_exceeds_key_cap',
  'ip_not_allowed',
  'session_required',
  'sign_in_failed',
  'recent_sign_in_required',
  'role_required',
  'scope_required',
  'account_switched',
  'already_member',
  'last_owner',
  'member_limit_exceeded',
  'insecure_connection',
  'cross_site_request',
  'key_limit_exceeded',
  'insufficient_balance',
  'payment_required',
  'payment_invalid',
  'payment_unknown',
  'model_not_found',
  'request_not_found',
  'request_archived',
  'not_found',
  'unknown_url',
  'method_not_allowed',
  'request_timeout',
  'account_not_closable',
  'body_too_large',
  'unsupported_media_type',
  'idempotency_mismatch',
  'rate_limited',
  'in_flight_cap',
  'quote_exceeds_cap',
  'upstream_error',
  'upstream_timeout',
  'overloaded',
  'settlement_delayed',
  'ledger_frozen',
  'internal_error',
] as const

export type ErrorCode = (typeof errorCodes)[number]

/** Details of an error for programs: the place in the request, and numbers. */
export type ErrorDetails = {
  /** The exact place in the request body, such as `messages[2].content[0].type`. */
  param?: string | undefined
  /** Extra fields of the error envelope, already in their JSON form. */
  extra?: Readonly<Record<string, string | number | null>> | undefined
  /** Retry after this time; only where waiting helps. At most a minute. */
  retryAfterMs?: number | undefined
  /** Response headers. */
  headers?: Readonly<Record<string, string>> | undefined
  cause?: unknown
}

/** An expected error, with a message for the customer. Any other error is a bug. */
export class ServiceError extends Error {
  readonly code: ErrorCode
  readonly param: string | undefined
  readonly extra: Readonly<Record<string, string | number | null>> | undefined
  readonly retryAfterMs: number | undefined
  readonly headers: Readonly<Record<string, string>> | undefined

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause })
    this.name = new.target.name
    this.code = code
    this.param = details.param
    this.extra = details.extra
    this.retryAfterMs = details.retryAfterMs
    this.headers = details.headers
  }
}

/** Load shedding, before anything was held. */
export class OverloadedError extends ServiceError {
  constructor(reason = 'The service is at its limit.') {
    super('overloaded', `${reason} Nothing was held; try again in a moment.`, { retryAfterMs: 1000 })
  }
}

/**
 * A start or a command failed, and the operator can fix it. The message is one line that says how; it is shown without a stack.
 */
export class OperatorError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.name = new.target.name
  }
}

/** A setting is well-formed, but what it names cannot be used. */
export class UnusableSettingError extends OperatorError {
  constructor(name: string, reason: string, remedy: string, cause?: unknown) {
    super(`${name} cannot be used: ${reason.replace(/\.$/, '')}. ${remedy}`, cause)
  }
}

/**
 * The reason of a failure in one line, without URLs and keys. A server may quote the URL that it was called with, and that URL may
 * contain a key: of a known URL only the host remains.
 */
export function reasonOf(error: unknown, address?: string): string {
  const { message, code, cause, status } = error as NodeJS.ErrnoException & { readonly status?: unknown }
  if (cause !== undefined) return reasonOf(cause, address)
  // The body is a page for browsers.
  if (typeof status === 'number') return `it answers ${status}`
  const text = code !== undefined && !message?.includes(code) ? `${code} ${message ?? ''}` : (message ?? String(error))
  const line = withoutKeys(text.split('\n')[0]!.trim())
  return secretsIn(address).reduce((safe, secret) => safe.replaceAll(secret, '…'), line)
}

/**
 * Removes everything but the host from URLs in a text, because they may contain keys. The expression looks behind for one letter of the
 * scheme: matching the whole scheme from every letter would take quadratic time, and others choose the length of the text.
 */
export function withoutKeys(text: string): string {
  return text.replace(/(?<=\w:\/\/)[^\s/@]*@/g, '').replace(/(?<=\w:\/\/)([^\s/?#"'<]+)[/?#][^\s"'<]+/g, '$1/…')
}

const secretLengthMin = 6

function secretsIn(address: string | undefined): readonly string[] {
  const urls = (address ?? '').split(',').flatMap((each) => URL.parse(each.trim()) ?? [])
  const parts = urls.flatMap((url) => [
    url.username,
    url.password,
    ...url.pathname.split('/'),
    ...url.searchParams.values(),
  ])
  return parts.filter(({ length }) => length >= secretLengthMin)
}
