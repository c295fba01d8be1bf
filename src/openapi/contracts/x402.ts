import { z } from 'zod'
import { withdrawalStates } from '../../ledger/states.ts'
import { contract } from '../contract.ts'
import { amount, count, instant, money, uuid } from '../shapes.ts'
import { chatBody, completing, modelList, question } from './chat.ts'
import { liabilityProof, snapshotQuery } from './receipt.ts'

const refund = z
  .object({
    object: z.literal('x402.refund'),
    id: uuid,
    ...money('amount'),
    recipient: z.string().meta({ description: 'The wallet' }),
    state: z.enum(withdrawalStates),
    tx_hash: z.string().nullable(),
    created_at: instant,
  })
  .meta({ id: 'X402Refund' })

/** Without an account or a key: a wallet pays per request, or shows its credit. */
export const x402Contracts = {
  createPaidCompletion: contract({
    operation: 'createPaidCompletion',
    method: 'POST',
    path: '/x402/v1/chat/completions',
    summary:
      'Create a chat completion, paid by a wallet over x402. Without a payment: 402, and the PAYMENT-REQUIRED header says what to pay',
    access: 'wallet',
    ...completing,
    body: chatBody,
  }),
  createPaidQuote: contract({
    operation: 'createPaidQuote',
    method: 'POST',
    path: '/x402/v1/quote',
    summary: 'Quote the maximum cost of a completion, and the amount that a signed-in wallet would have to pay',
    access: 'public',
    isChat: true,
    examples: { body: question },
    body: chatBody,
    answer: z
      .object({
        object: z.literal('x402.quote'),
        model: z.string(),
        max_tokens: count,
        input_tokens_max: count,
        ...money('quote', 'credit', 'amount'),
      })
      .meta({ id: 'X402Quote' }),
  }),
  listPaidModels: contract({
    operation: 'listPaidModels',
    method: 'GET',
    path: '/x402/v1/models',
    summary: 'List models and prices',
    access: 'public',
    answer: modelList,
  }),
  getWalletBalance: contract({
    operation: 'getWalletBalance',
    method: 'GET',
    path: '/x402/v1/balance',
    summary: 'Get the credit of a wallet that signed in, and its latest refunds',
    access: 'wallet',
    answer: z
      .object({
        object: z.literal('x402.balance'),
        wallet: z.string(),
        ...money('credit', 'refundable', 'held', 'charged', 'paid', 'refunded'),
        refunds: z.array(refund),
      })
      .meta({ id: 'X402Balance' }),
  }),
  getWalletLiabilityProof: contract({
    operation: 'getWalletLiabilityProof',
    method: 'GET',
    path: '/x402/v1/liabilities/proof',
    summary: 'Prove that the credit of a wallet that signed in is part of the sum that the service says it owes',
    access: 'wallet',
    query: snapshotQuery,
    refusedWith: [404],
    answer: liabilityProof,
  }),
  createRefund: contract({
    operation: 'createRefund',
    method: 'POST',
    path: '/x402/v1/refund',
    summary:
      'Pay refundable credit back to the wallet that signed in: all of it, or an amount. Less than the minimum of a withdrawal is paid once in 24 hours, if it is all of it; a wallet is refunded at most 10 times in 24 hours',
    access: 'wallet',
    status: 202,
    body: z.strictObject({
      id: uuid.optional().meta({ description: 'Idempotency key, a UUID chosen by the client' }),
      amount: amount.optional(),
    }),
    answer: refund,
    refusedWith: [422],
  }),
}
