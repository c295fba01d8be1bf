import { z } from 'zod'

// The shapes that several routes share. Objects of answers are open to new members; bodies of requests are closed, so that a
// mistyped name is refused, not ignored.

/** Two fields per amount: atomic units for programs, USDC for people. */
export function money<const Name extends string>(...names: readonly Name[]): MoneyShape<Name> {
  const members = names.flatMap((name) => [
    [`${name}_atomic`, atomic],
    [name, usdc],
  ])
  return Object.fromEntries(members) as MoneyShape<Name>
}

/** Amounts that may be absent: a key without a limit. */
export function optionalMoney<const Name extends string>(...names: readonly Name[]): OptionalMoneyShape<Name> {
  const members = names.flatMap((name) => [
    [`${name}_atomic`, atomic.nullable()],
    [name, usdc.nullable()],
  ])
  return Object.fromEntries(members) as OptionalMoneyShape<Name>
}

type MoneyShape<Name extends string> = { [Member in Name | `${Name}_atomic`]: z.ZodString }
type OptionalMoneyShape<Name extends string> = { [Member in Name | `${Name}_atomic`]: z.ZodNullable<z.ZodString> }

const atomic = z
  .string()
  .regex(/^-?\d+$/)
  .meta({ description: 'Atomic USDC (6 decimals), as a decimal string', examples: ['2400'], id: 'AtomicUsdc' })
export const usdc = z
  .string()
  .regex(/^-?\d+(\.\d{1,6})?$/)
  .meta({ description: 'USDC, exact', examples: ['0.0024'], id: 'Usdc' })

const amountPattern = /^\d{1,12}(\.\d{1,6})?$/
const amountForm = 'must be an amount of USDC such as "2.50", with at most six decimals'

/** An amount in a request: a plain decimal of USDC. */
export const amount = z
  .string()
  .regex(amountPattern, amountForm)
  .meta({ description: 'USDC, a decimal with at most six places', examples: ['2.50'] })

/** A key's limit, as a string or a number. Above 0: to stop a key from spending, disable it. */
export const keyLimit = z
  .union([z.string(), z.number()], 'must be an amount of USDC such as "2.50"')
  .transform(String)
  .refine((given) => amountPattern.test(given), amountForm)
  .refine((given) => /[1-9]/.test(given), 'must be above 0. To stop a key from spending, disable or revoke it')
  .meta({ description: 'USDC above 0, with at most six decimals; a string or a number', examples: ['2.50'] })

/** The most that one request of a key may cost. */
export const requestCost = z
  .union([z.string(), z.number()], 'must be an amount of USDC such as "0.05"')
  .transform(String)
  .refine((given) => amountPattern.test(given), amountForm)
  .refine((given) => /[1-9]/.test(given), 'must be above 0. To stop a key from spending, disable or revoke it')
  .meta({
    description:
      'USDC above 0. A request that could cost more, including its searches, is refused with quote_exceeds_key_cap',
    examples: ['0.05'],
  })

/** Text that the database can keep: it has no NUL, and UTF-8 cannot encode half of a surrogate pair. */
export function text(lengthMax: number) {
  return z
    .string()
    .max(lengthMax)
    .refine((given) => !given.includes('\0'), 'must not contain a NUL character')
    .refine((given) => given.isWellFormed(), 'must be well-formed Unicode, without a lone surrogate')
}

export const instant = z.iso.datetime({ offset: true }).meta({ description: 'ISO 8601 instant', id: 'Instant' })
/** In a query. Rounded to full days it stays a time that ISO 8601 writes with four digits of the year. */
export const askedInstant = instant.refine(
  (given) => given >= '1970' && given < '9999',
  'must be a time from 1970 to 9998',
)
export const uuid = z.uuid()
export const count = z.int().min(0)
export const milliseconds = z.number().min(0)

/** Any text: what is not an id is an id that was never given. */
export const requestId = z.string().meta({
  description: 'The value of x-router-request-id',
  examples: ['req_0198f0c2a1b2700080d0a1b2c3d4e5f6'],
})

/** Checked for its checksum where it matters; here only its form. */
export const address = z
  .string()
  .regex(/^0x[0-9a-fA-F]{40}$/, 'must be an address: 0x and 40 hex digits')
  .meta({
    description: 'An address of the chain',
    examples: ['0x70997970C51812dc3A010C7d01b50e0d17dc79C8'],
  })

export const hash = z
  .string()
  .regex(/^0x[0-9a-f]{64}$/)
  .meta({ description: '32 bytes in hex', id: 'Hash' })

/** Names are printed: on pages, and on the terminals of operators, where a control character could do anything. */
export const name = text(200)
  .trim()
  .min(1)
  .refine((given) => !/\p{Cc}/u.test(given), 'must not contain control characters')

/** Pages are read with the cursor of the previous page. Cursors are opaque. */
export const page = {
  cursor: text(200).optional(),
  limit: z.coerce.number().int().min(1).max(200).default(50),
}

export function list<Item extends z.ZodType>(item: Item) {
  return z.object({
    object: z.literal('list'),
    data: z.array(item),
    has_more: z.boolean(),
    next_cursor: z.string().nullable(),
  })
}

/** A query parameter that may come several times: OR between its values. */
export function several<Value extends z.ZodType<unknown, string>>(value: Value) {
  return z.preprocess(
    (given) => (given === undefined || Array.isArray(given) ? given : [given]),
    z.array(value).max(50).optional(),
  )
}

export const flag = z.enum(['true', 'false'])

/** Of every error. */
export const errorFields = {
  message: z.string().meta({ description: 'What happened and what to do next' }),
  type: z.string(),
  param: z.string().nullable().meta({ description: 'The place in the request, such as `messages[2].content`' }),
  code: z.string().meta({ description: 'Permanent; see doc_url' }),
  request_id: z.string(),
  doc_url: z.string(),
}
