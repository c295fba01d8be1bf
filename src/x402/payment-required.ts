import { ServiceError } from '../errors.ts'
import { refundRule } from '../ledger/refunds.ts'
import { moneyFields } from '../money/money-fields.ts'
import { format, type Usdc } from '../money/usdc.ts'
import { encodeHeader } from './header.ts'
import { signInExtension } from './sign-in.ts'
import { amountToPay, requirementsOf, type X402Terms } from './terms.ts'

/** The resource that a 402 asks to pay for. */
export type Resource = {
  readonly path: string
  readonly description: string
  /** More extensions of its 402. */
  readonly extensions?: Readonly<Record<string, object>>
}

/** The extension `bazaar`: how to call the endpoint, for facilitators that list what can be bought. Examples only, and short: each 402 carries it. */
const discoveryExtension = {
  info: {
    input: {
      type: 'http',
      method: 'POST',
      bodyType: 'json',
      body: { model: 'gpt-5.6-terra', messages: [{ role: 'user', content: 'What is a penny?' }], max_tokens: 512 },
    },
    output: { type: 'json', example: { object: 'chat.completion' } },
  },
  schema: {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    properties: {
      input: {
        type: 'object',
        properties: {
          type: { const: 'http' },
          method: { const: 'POST' },
          bodyType: { const: 'json' },
          body: { type: 'object', properties: { messages: { type: 'array' } }, required: ['messages'] },
        },
        required: ['type', 'method', 'bodyType', 'body'],
      },
      output: { type: 'object' },
    },
    required: ['input'],
  },
}

export const chatResource: Resource = {
  path: '/x402/v1/chat/completions',
  description: 'Chat completion',
  extensions: { bazaar: discoveryExtension },
}

const identifierExtension = {
  info: { required: false },
  schema: {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    properties: {
      required: { type: 'boolean' },
      id: { type: 'string', minLength: 16, maxLength: 128, pattern: '^[a-zA-Z0-9_-]+$' },
    },
    required: ['required'],
  },
}

/** The `PAYMENT-REQUIRED` header: what has to be paid, and how the wallet can show its credit. Nothing is stored or signed for it. */
export function paymentRequired(
  terms: X402Terms,
  { path, description, extensions }: Resource,
  amount: bigint,
  nowMs: number,
): Readonly<Record<string, string>> {
  const url = `${terms.publicUrl}${path}`
  return {
    'payment-required': encodeHeader({
      x402Version: 2,
      error: 'PAYMENT-SIGNATURE header is required',
      resource: { url, description, mimeType: 'application/json' },
      accepts: [requirementsOf(terms, amount)],
      extensions: {
        'sign-in-with-x': signInExtension(terms, url, nowMs),
        'payment-identifier': identifierExtension,
        ...extensions,
      },
    }),
    'cache-control': 'no-store',
  }
}

/** The request is not paid for. */
export class PaymentRequiredError extends ServiceError {
  constructor(terms: X402Terms, quote: Usdc, credit: Usdc, problem?: string) {
    const amount = amountToPay(quote, credit)
    const least = amount + credit > quote ? ', the smallest payment,' : ''
    const covered = credit > 0n ? `; credit of this wallet covers ${format(credit)} USDC of it` : ''
    super(
      'payment_required',
      `${problem === undefined ? '' : `${problem} `}This request may cost ${format(quote)} USDC${covered}. Pay ${format(amount)} USDC${least} over x402 (the PAYMENT-REQUIRED header says how). The unused part becomes credit. ${refundRule}`,
      {
        extra: moneyFields({ quote, credit, amount }),
        headers: paymentRequired(terms, chatResource, amount, Date.now()),
      },
    )
  }
}
