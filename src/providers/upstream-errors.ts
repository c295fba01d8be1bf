import { ServiceError } from '../errors.ts'
import { chatParam, type Protocol } from './protocol.ts'
import type { ResponseHead } from './upstream-call.ts'
import { type Fault, flaggedFault } from './upstream-fault.ts'

const retryAfterMsMax = 60_000
const retryAfterMsDefault = 2_000

/** An error response instead of a stream. */
export type Refusal = Pick<ResponseHead, 'statusCode' | 'headers'> & { readonly fault: Fault }

/** The code of a refusal that has none. */
export const refusedFault = 'invalid_request'

export function refusalError({ statusCode, headers, fault }: Refusal, protocol: Protocol): ServiceError {
  if (isQuotaFault(fault) || statusCode === 402) return new QuotaExhaustedError(statusCode)
  if (statusCode === 429) return new ModelOverloadedError(retryAfterMs(headers))
  if (isClientsFault(statusCode, fault)) return clientError({ ...fault, param: chatParam(fault.param, protocol) })
  return new UpstreamError('The model is not available at the moment. Try again.', { upstreamStatus: statusCode })
}

// We build the request, name the model and send the key, so an error about these is our mistake, not the customer's.
const ourFaults = new Set([
  'unknown_parameter',
  'missing_required_parameter',
  'invalid_type',
  'invalid_json',
  'server_error',
  'invalid_api_key',
  'model_not_found',
  // Google's.
  'API_KEY_INVALID',
  // FastAPI's: an unknown member, and one that is missing.
  'extra_forbidden',
  'missing',
])

// Of OpenRouter, Mistral and DeepSeek, which have no code for it. Each is the whole message: a provider may quote the customer's text.
const unknownModel = /^(?:\S+ is not a valid model ID|Invalid model: \S+|Model Not Exist)\.?$/i

function isClientsFault(statusCode: number, { code, message, param }: Fault): boolean {
  const refused = [400, 413, 422].includes(statusCode) || (statusCode === 403 && code === flaggedFault)
  if (!refused || message === '') return false
  return param !== 'model' && !ourFaults.has(code) && !unknownModel.test(message)
}

// The second is llama.cpp's.
const contextFaults = new Set(['context_length_exceeded', 'exceed_context_size_error'])
// Of vLLM, SGLang, Ollama and Google, which have no code for it.
const tooLong =
  /maximum context length|model's context length|exceeds the (?:model's )?context|input token count (?:\(\d+\) )?exceeds/i

function clientError({ code, message, param }: Pick<Fault, 'code' | 'message'> & Partial<Fault>): ServiceError {
  if (contextFaults.has(code) || tooLong.test(message)) return new ContextLengthExceededError(message)
  return new RefusedByModelError(message, { param, isFlagged: flaggedFaults.has(code) })
}

/** The request itself was refused: another provider would refuse it too. The customer has to change it. */
export function isCustomersFault(error: unknown): error is ServiceError {
  return error instanceof RefusedByModelError || error instanceof ContextLengthExceededError
}

function retryAfterMs(headers: ResponseHead['headers']): number {
  const milliseconds = Number(headers['retry-after-ms'] ?? Number.NaN)
  const seconds = Number(headers['retry-after'] ?? Number.NaN)
  const untilDate = Date.parse(String(headers['retry-after'])) - Date.now()
  const asked = [milliseconds, seconds * 1000, untilDate].find(Number.isFinite)
  if (asked === undefined || asked < 0) return retryAfterMsDefault
  return Math.min(Math.ceil(asked), retryAfterMsMax)
}

/** The provider found that the customer's input violates its policy. It may block the operator's key for many of them. */
const flaggedFaults = new Set(['invalid_prompt', flaggedFault, 'bio_policy', 'misalignment_policy_violation'])
// Error codes that are caused by the customer's input.
const promptFaults = flaggedFaults.union(new Set(['context_length_exceeded']))
const overloadFaults = new Set(['rate_limit_exceeded', 'server_is_overloaded', 'slow_down', 'overloaded'])

// The operator's credit at the provider is used up. It comes with status 429 or 400, but a retry in two seconds does not help.
const quotaFaults = new Set(['insufficient_quota', 'billing_hard_limit_reached'])
const quotaRetryMs = 60_000

// Anthropic has no code for it.
function isQuotaFault({ code, message }: Pick<Fault, 'code' | 'message'>): boolean {
  return quotaFaults.has(code) || /^Your credit balance is too low\b/.test(message)
}

/** Our own fault code, not the provider's: see `UnreadAnswerError`. */
export const unreadFault = 'answer_unread'

/** The error for an answer that failed before any of it was sent. */
export function failureError({ code, message }: { readonly code: string; readonly message: string }): ServiceError {
  if (promptFaults.has(code)) return clientError({ code, message })
  if (isQuotaFault({ code, message })) return new QuotaExhaustedError()
  if (overloadFaults.has(code)) return new ModelOverloadedError()
  if (code === 'upstream_timeout') return new UpstreamTimeoutError()
  if (code === unreadFault) return new UnreadAnswerError()
  return new UpstreamError(`The model failed: ${message}${/[.!?]$/.test(message) ? '' : '.'} Try again.`)
}

/** The model is unreachable, fails, or refuses our key. */
export class UpstreamError extends ServiceError {
  /** For the operator's log: 401 and 403 mean that the key is wrong. */
  readonly upstreamStatus: number | undefined
  constructor(message: string, details: { readonly upstreamStatus?: number; readonly cause?: unknown } = {}) {
    super('upstream_error', message, { cause: details.cause })
    this.upstreamStatus = details.upstreamStatus
  }
}

export class UpstreamTimeoutError extends ServiceError {
  constructor(totalMs?: number, cause?: unknown) {
    // The remaining time of a second attempt can be a fraction of a second, which is no use to a customer.
    const limit = totalMs === undefined || totalMs < 1_000 ? 'in time' : `within ${Math.round(totalMs / 1000)} seconds`
    super('upstream_timeout', `The model did not answer ${limit}. Try again, or lower max_tokens.`, { cause })
  }
}

/** The deadline has passed while data waited to be read: the client was too slow, not the provider. */
export class UnreadAnswerError extends ServiceError {
  constructor() {
    super('upstream_timeout', 'The answer was not read in time. Read the stream without pauses, or lower max_tokens.')
  }
}

export class ModelOverloadedError extends ServiceError {
  constructor(retryAfterMs = 1_000) {
    const seconds = Math.ceil(retryAfterMs / 1000)
    super('overloaded', `The model is overloaded. Try again in ${seconds === 1 ? 'a second' : `${seconds} seconds`}.`, {
      retryAfterMs,
    })
  }
}

export class QuotaExhaustedError extends ServiceError {
  /** For the operator's log. */
  readonly upstreamStatus: number | undefined
  constructor(upstreamStatus?: number) {
    super(
      'overloaded',
      'The quota of this service at its model provider is exhausted. Try again in a minute, or contact the operator.',
      { retryAfterMs: quotaRetryMs },
    )
    this.upstreamStatus = upstreamStatus
  }
}

export class ContextLengthExceededError extends ServiceError {
  constructor(message: string) {
    super('context_length_exceeded', `The conversation does not fit the model: ${message}`, { param: 'messages' })
  }
}

/** The model accepts requests, but not this one. */
export class RefusedByModelError extends ServiceError {
  /** For its content, by the provider's policy. */
  readonly isFlagged: boolean
  constructor(
    message: string,
    { param, isFlagged }: { readonly param: string | undefined; readonly isFlagged: boolean },
  ) {
    super('invalid_value', `The model refused the request: ${message}`, { param })
    this.isFlagged = isFlagged
  }
}
