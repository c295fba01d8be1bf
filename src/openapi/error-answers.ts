import { z } from 'zod'
import { count, errorFields, instant, optionalMoney } from './shapes.ts'

// The errors of the API by status: what each says beyond the fields of every error.

const payment = {
  ...partial(optionalMoney('paid')),
  payment: z.string().optional().meta({ description: 'What became of a payment over x402 that was accepted' }),
}

function partial<Shape extends z.ZodRawShape>(shape: Shape) {
  return z.object(shape).partial().shape
}

/** The money that an admission would need. */
const advice = {
  ...partial(optionalMoney('required', 'available', 'held')),
  affordable_max_tokens: count.optional().meta({ description: 'The largest max_tokens that would be accepted now' }),
  deposit_address: z.string().nullable().optional(),
}

function errorOf<Extra extends z.ZodRawShape>(id: string, extra: Extra) {
  return z.object({ error: z.object({ ...errorFields, ...extra }) }).meta({ id })
}

export const anyError = errorOf('Error', payment)

/** The description and the body of each status. */
export const errorAnswers = {
  400: ['The request is invalid; `param` names the place', anyError],
  401: ['No valid credential', anyError],
  402: [
    'The money does not suffice, or a wallet has to pay first: then the header `PAYMENT-REQUIRED` says what',
    errorOf('PaymentRequiredError', {
      ...advice,
      ...partial(optionalMoney('quote', 'credit', 'amount')),
      reason: z.string().optional().meta({ description: 'Why a payment over x402 was not accepted' }),
      ...payment,
    }),
  ],
  403: [
    'The credential is valid, and not allowed to do this',
    errorOf('ForbiddenError', {
      ...partial(optionalMoney('required', 'quote', 'search_max', 'key_cap')),
      affordable_max_tokens: count.optional(),
      member_limit_atomic: z.string().optional(),
      allocated_atomic: z.string().optional(),
      limit_window: z.string().nullable().optional(),
      ...payment,
    }),
  ],
  404: ['There is no such object', anyError],
  408: ['The request did not arrive in time', anyError],
  409: [
    'The state of the account does not allow it',
    errorOf('ConflictError', {
      ...partial(optionalMoney('required', 'available')),
      withdrawal_fee_max_atomic: z.string().optional(),
    }),
  ],
  410: ['The request was moved to an archive', errorOf('GoneError', { archived_before: instant.optional() })],
  413: ['The body is too large', anyError],
  415: ['The body is not JSON', anyError],
  422: ['The idempotency key was used with another body', anyError],
  429: ['Too many requests, or too much money in flight', errorOf('RateLimitError', { ...advice, ...payment })],
  500: ['A bug of this service', anyError],
  502: ['The provider of the model failed before any output; nothing was charged', anyError],
  503: ['The service cannot take requests now; try again', anyError],
  504: ['The provider of the model did not answer in time; nothing was charged', anyError],
} as const satisfies Readonly<Record<number, readonly [description: string, body: z.ZodType]>>
