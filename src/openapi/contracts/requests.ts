import { z } from 'zod'
import { paymentStates, requestStatuses, usageSources } from '../../ledger/states.ts'
import { contract } from '../contract.ts'
import {
  amount,
  count,
  flag,
  hash,
  instant,
  list,
  milliseconds,
  money,
  page,
  requestId,
  several,
  text,
  uuid,
} from '../shapes.ts'

const status = z.enum(requestStatuses)

export const settlementState = z.enum(['none', 'unpaid', 'prepaid', ...paymentStates]).meta({
  description:
    'State of the payment that covers the request. none: the request cost nothing. unpaid: no payment covers it yet. prepaid: a wallet paid it in advance over x402',
})

/** The ledger row of one request. */
export const request = z
  .object({
    id: requestId,
    object: z.literal('request'),
    status,
    created_at: instant,
    ended_at: instant.nullable(),
    model: z.string().nullable(),
    stream: z.boolean(),
    max_tokens: count.nullable(),
    key: z.object({ id: uuid, name: z.string(), hint: z.string() }),
    ...money('quote', 'held', 'extended', 'charged', 'given_back', 'refunded', 'excess', 'from_credit', 'authorized'),
    usage: z
      .object({
        prompt_tokens: count,
        completion_tokens: count,
        reasoning_tokens: count,
        cached_tokens: count,
        total_tokens: count,
        source: z.enum(usageSources),
      })
      .nullable(),
    cost: z.object({
      ...money('inference', 'search'),
      search_calls: count,
      fetch_calls: count,
      lines: z.array(
        z.object({
          item: z.enum(['input_tokens', 'output_tokens', 'web_search', 'web_fetch']),
          units: count,
          per_million: z.string().optional().meta({ description: 'USDC per million units' }),
          per_call: z.string().optional().meta({ description: 'USDC per unit' }),
          call: count.optional().meta({ description: 'Position among the tool calls' }),
          status: z.enum(['completed', 'failed']).optional(),
          reason: z.enum(['max_tokens_spent', 'budget_spent']).optional().meta({
            description: 'Why a call was not run: too few tokens left for an answer, or no money left',
          }),
          results: count.optional(),
        }),
      ),
    }),
    price: z
      .object({
        version: z.string(),
        input_per_million: z.string(),
        output_per_million: z.string(),
        search_per_call: z.string(),
      })
      .nullable(),
    finish_reason: z.string().nullable(),
    error: z.object({ code: z.string() }).nullable(),
    latency: z.object({ first_token_ms: milliseconds.nullable(), total_ms: milliseconds.nullable() }),
    settlement: z.object({
      state: settlementState,
      payment: z
        .object({
          number: z.string().meta({ description: 'Number of the payment within the account' }),
          nonce: hash.meta({ description: 'Nonce of its authorization on chain' }),
          ...money('value'),
          entries: count.meta({ description: 'Number of requests and corrections that it pays' }),
        })
        .nullable()
        .meta({ description: 'The on-chain payment that covers this request and others of the account' }),
      batch: z.string().nullable(),
      batch_position: count
        .nullable()
        .meta({ description: 'Position in its batch, starting at 1; null if the gateway does not report it' }),
      batch_size: count.nullable().meta({ description: 'Number of payments in the batch' }),
      tx_hash: hash.nullable(),
      reason: z.string().nullable(),
      changed_at: instant.nullable(),
    }),
    receipt: z.object({ id: z.string(), number: z.string(), batched: z.boolean(), url: z.string() }).nullable(),
  })
  .meta({ id: 'Request' })

/** AND between the filters, OR within one. */
export const requestFilters = {
  status: several(status),
  error_code: several(text(100)),
  model: several(text(100)),
  key: several(uuid),
  has_search: flag.optional(),
  stream: flag.optional(),
  min_cost: amount.optional().meta({ description: 'Minimum charge in USDC' }),
  from: instant.optional(),
  to: instant.optional().meta({ description: 'Exclusive' }),
  find: text(200).trim().optional().meta({ description: 'A request, completion or receipt id, or a transaction hash' }),
}

export const requestTotals = z
  .object({
    object: z.literal('request_totals'),
    requests: count.meta({
      description: 'Accepted requests, including running ones. Refused requests are counted separately',
    }),
    refused: count,
    ...money('charged', 'quote', 'search'),
    prompt_tokens: count,
    completion_tokens: count,
    search_calls: count,
    complete: z
      .boolean()
      .meta({ description: 'False if more rows match than are summed here; the export contains all' }),
  })
  .meta({ id: 'RequestTotals' })

export const requestContracts = {
  listRequests: contract({
    operation: 'listRequests',
    method: 'GET',
    path: '/api/requests',
    summary:
      'List requests, newest first. A page can be short or even empty while has_more is true, because the number of rows read per page is limited',
    access: 'key or session',
    role: 'viewer',
    scope: 'usage:read',
    isHeavy: true,
    query: z.object({ ...requestFilters, ...page, format: z.enum(['json', 'csv', 'ndjson']).optional() }),
    answer: list(request),
    alsoAs: ['text/csv', 'application/x-ndjson'],
  }),
  getRequestTotals: contract({
    operation: 'getRequestTotals',
    method: 'GET',
    path: '/api/requests/totals',
    summary: 'Get totals of the filtered requests',
    access: 'key or session',
    role: 'viewer',
    scope: 'usage:read',
    isHeavy: true,
    query: z.object(requestFilters),
    answer: requestTotals,
  }),
  getRequest: contract({
    operation: 'getRequest',
    method: 'GET',
    path: '/api/requests/{id}',
    summary: 'Get one request with its cost and the state of its payment',
    access: 'key or session',
    role: 'viewer',
    scope: 'usage:read',
    parameters: z.object({ id: requestId }),
    refusedWith: [410],
    answer: request,
  }),
  deleteReplays: contract({
    operation: 'deleteReplays',
    method: 'DELETE',
    path: '/api/replays',
    summary:
      'Delete the answers that are stored for retries: those of the API key or, with a session, of the keys that the member sees. A later retry is served and charged again',
    access: 'key or session',
    role: 'developer',
    answer: z.object({ object: z.literal('deletion'), deleted: z.int() }),
  }),
} as const
