import { isTransient } from '../db/database.ts'
import { type ErrorCode, ServiceError } from '../errors.ts'
import { encodeHeader } from '../x402/header.ts'

/** Status and type of every code. A new code does not compile until it is here. */
const answers = {
  invalid_json: [400, 'invalid_request_error'],
  invalid_value: [400, 'invalid_request_error'],
  missing_required_parameter: [400, 'invalid_request_error'],
  unsupported_parameter: [400, 'invalid_request_error'],
  unsupported_content: [400, 'invalid_request_error'],
  context_length_exceeded: [400, 'invalid_request_error'],
  web_search_unavailable: [400, 'invalid_request_error'],
  invalid_api_key: [401, 'invalid_request_error'],
  api_key_expired: [401, 'invalid_request_error'],
  api_key_revoked: [401, 'invalid_request_error'],
  account_suspended: [403, 'invalid_request_error'],
  model_not_allowed: [403, 'invalid_request_error'],
  web_tools_not_allowed: [403, 'invalid_request_error'],
  quote_exceeds_key_cap: [403, 'invalid_request_error'],
  ip_not_allowed: [403, 'invalid_request_error'],
  session_required: [401, 'invalid_request_error'],
  sign_in_failed: [401, 'invalid_request_error'],
  recent_sign_in_required: [403, 'invalid_request_error'],
  role_required: [403, 'invalid_request_error'],
  scope_required: [403, 'invalid_request_error'],
  account_switched: [409, 'invalid_request_error'],
  already_member: [409, 'invalid_request_error'],
  last_owner: [409, 'invalid_request_error'],
  member_limit_exceeded: [403, 'invalid_request_error'],
  insecure_connection: [403, 'invalid_request_error'],
  cross_site_request: [403, 'invalid_request_error'],
  key_limit_exceeded: [402, 'payment_required'],
  insufficient_balance: [402, 'payment_required'],
  payment_required: [402, 'payment_required'],
  payment_invalid: [402, 'payment_required'],
  payment_unknown: [503, 'server_error'],
  model_not_found: [404, 'invalid_request_error'],
  request_not_found: [404, 'invalid_request_error'],
  not_found: [404, 'invalid_request_error'],
  unknown_url: [404, 'invalid_request_error'],
  method_not_allowed: [405, 'invalid_request_error'],
  request_archived: [410, 'invalid_request_error'],
  request_timeout: [408, 'invalid_request_error'],
  account_not_closable: [409, 'invalid_request_error'],
  body_too_large: [413, 'invalid_request_error'],
  unsupported_media_type: [415, 'invalid_request_error'],
  idempotency_mismatch: [422, 'invalid_request_error'],
  rate_limited: [429, 'rate_limit_error'],
  in_flight_cap: [429, 'rate_limit_error'],
  quote_exceeds_cap: [429, 'rate_limit_error'],
  upstream_error: [502, 'server_error'],
  overloaded: [503, 'server_error'],
  settlement_delayed: [503, 'server_error'],
  ledger_frozen: [503, 'server_error'],
  upstream_timeout: [504, 'server_error'],
  internal_error: [500, 'server_error'],
} as const satisfies Record<ErrorCode, readonly [status: number, type: string]>

// Retrying does not help, but SDKs would retry some of these because of their status. After a payment with an unknown outcome a retry
// would even sign a second one.
const neverRetried = new Set<ErrorCode>(['quote_exceeds_cap', 'payment_unknown'])
const retryAfterMsMax = 60_000

export type ErrorResponse = {
  readonly status: (typeof answers)[ErrorCode][0]
  readonly headers: Readonly<Record<string, string>>
  readonly body: ErrorEnvelope
}

/** OpenAI's error envelope, plus the request id and a link to the documentation of the code. */
export type ErrorEnvelope = {
  readonly error: {
    readonly message: string
    readonly type: string
    readonly param: string | null
    readonly code: ErrorCode
    readonly request_id: string
    readonly doc_url: string
    readonly [extra: string]: string | number | null
  }
}

export type ErrorContext = {
  /** In the form that customers see. */
  readonly requestId: string
  readonly publicUrl: string
  /** Further fields of the envelope, for any error. */
  readonly extra?: Readonly<Record<string, string>> | undefined
}

/** Turns anything thrown into a response. An error that is not a `ServiceError` is a bug: its message is not sent to the customer. */
export function errorResponse(error: unknown, context: ErrorContext): ErrorResponse {
  const refusal = refusalOf(error)
  const [status, type] = answers[refusal.code]
  return {
    status,
    headers: {
      ...retryHeaders(refusal, status),
      ...(status === 401 && { 'www-authenticate': 'Bearer realm="Penny Router"' }),
      ...(status === 402 && { 'payment-required': explainToX402(refusal, context) }),
      ...refusal.headers,
    },
    body: {
      error: {
        message: refusal.message,
        type,
        param: refusal.param ?? null,
        code: refusal.code,
        request_id: context.requestId,
        doc_url: `${context.publicUrl}/docs/errors#${refusal.code}`,
        ...refusal.extra,
        ...context.extra,
      },
    },
  }
}

/**
 * Clients with x402 support drop the body of a 402 and read this header. This 402 cannot be paid per request, so the header names a
 * scheme that no client supports. Clients then report the requirement that they cannot pay, with our message in it.
 */
function explainToX402(refusal: ServiceError, { publicUrl }: ErrorContext): string {
  const requirement = {
    scheme: 'account-balance',
    network: 'penny:account',
    asset: 'USDC',
    amount: String(refusal.extra?.required_atomic ?? '0'),
    payTo: String(refusal.extra?.deposit_address ?? ''),
    maxTimeoutSeconds: 0,
    extra: { message: refusal.message },
  }
  const resource = {
    url: `${publicUrl}/docs/errors#${refusal.code}`,
    description: refusal.message,
    mimeType: 'text/html',
  }
  return encodeHeader({ x402Version: 2, error: refusal.message, resource, accepts: [requirement] })
}

function refusalOf(error: unknown): ServiceError {
  if (error instanceof ServiceError) return error
  return isTransient(error)
    ? new ServiceError(
        'overloaded',
        'The database does not respond at the moment. Try again shortly. The request log shows the outcome of this request.',
        {
          retryAfterMs: 2_000,
          cause: error,
        },
      )
    : new ServiceError(
        'internal_error',
        'Something went wrong on our side. Only what the request log shows was charged. Contact us with the request id.',
        { cause: error },
      )
}

/** Whether clients should retry after this error. */
export function isRepeatable(error: unknown): boolean {
  const { code } = refusalOf(error)
  return isRetried(code, answers[code][0])
}

/** For the documentation of a code. */
export function answerOf(code: ErrorCode): { readonly status: number; readonly retried: boolean } {
  const [status] = answers[code]
  return { status, retried: isRetried(code, status) }
}

function isRetried(code: ErrorCode, status: number): boolean {
  return !neverRetried.has(code) && (status >= 429 || status === 408)
}

function retryHeaders(refusal: ServiceError, status: number): Record<string, string> {
  if (!isRetried(refusal.code, status)) return { 'x-should-retry': 'false' }
  if (status !== 429 && status !== 503) return {}
  const waitMs = Math.min(refusal.retryAfterMs ?? 1000, retryAfterMsMax)
  return {
    'x-should-retry': 'true',
    'retry-after': String(Math.ceil(waitMs / 1000)),
    'retry-after-ms': String(waitMs),
  }
}
