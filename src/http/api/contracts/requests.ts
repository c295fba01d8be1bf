import { z } from 'zod'
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

const status = z.enum(['held', 'succeeded', 'failed', 'cancelled', 'refused'])

export const settlementState = z.enum([
  'none',
  'allocated',
  'signed',
  'submitted',
  'received',
  'batched',
  'confirmed',
  'completed',
  'voided',
  'failed',
  'unknown',
])

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
    ...money('quote', 'held', 'extended', 'charged', 'refunded', 'excess', 'from_credit', 'authorized'),
    usage: z
      .object({
        prompt_tokens: count,
        completion_tokens: count,
        reasoning_tokens: count,
        cached_tokens: count,
        total_tokens: count,
        source: z.enum(['upstream', 'counted']),
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
          per_million: z.string().optional().meta({ description: 'USDC for a million units' }),
          per_call: z.string().optional().meta({ description: 'USDC for one' }),
          call: count.optional().meta({ description: 'Its place among the tool calls' }),
          status: z.enum(['completed', 'failed']).optional(),
          reason: z.enum(['max_tokens_spent', 'budget_spent']).optional().meta({
            description: 'Why a failed call was not run: too few tokens left for an answer, or no money for it',
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
      nonce: z.string().nullable(),
      authorization: z.object({ ...money('value'), authorized_at: instant.nullable() }).nullable(),
      batch: z.string().nullable(),
      batch_position: count
        .nullable()
        .meta({ description: 'Among the payments of its batch, counted from 1; null where the gateway does not say' }),
      batch_size: count.nullable().meta({ description: 'How many payments the batch has' }),
      tx_hash: hash.nullable(),
      reason: z.string().nullable(),
      changed_at: instant.nullable(),
    }),
    receipt: z.object({ id: z.string(), number: z.string(), hash, batched: z.boolean(), url: z.string() }).nullable(),
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
  min_cost: amount.optional().meta({ description: 'USDC; charged at least this much' }),
  from: instant.optional(),
  to: instant.optional().meta({ description: 'Not included' }),
  find: text(200).trim().optional().meta({ description: 'A request, completion or receipt id, or a transaction hash' }),
}

export const requestTotals = z
  .object({
    object: z.literal('request_totals'),
    requests: count.meta({ description: 'Admitted, running ones included. Refused ones are apart' }),
    refused: count,
    ...money('charged', 'quote', 'search'),
    prompt_tokens: count,
    completion_tokens: count,
    search_calls: count,
    complete: z.boolean().meta({ description: 'False: more rows match than are summed here; the export has them all' }),
  })
  .meta({ id: 'RequestTotals' })

export const requestContracts = {
  listRequests: contract({
    operation: 'listRequests',
    method: 'GET',
    path: '/api/requests',
    summary:
      'The request log, newest first. A page may be short, or empty, with has_more true: so many rows are looked at for one page',
    access: 'key or session',
    isHeavy: true,
    query: z.object({ ...requestFilters, ...page, format: z.enum(['json', 'csv', 'ndjson']).optional() }),
    answer: list(request),
    alsoAs: ['text/csv', 'application/x-ndjson'],
  }),
  getRequestTotals: contract({
    operation: 'getRequestTotals',
    method: 'GET',
    path: '/api/requests/totals',
    summary: 'Sums over the filtered requests',
    access: 'key or session',
    isHeavy: true,
    query: z.object(requestFilters),
    answer: requestTotals,
  }),
  getRequest: contract({
    operation: 'getRequest',
    method: 'GET',
    path: '/api/requests/{id}',
    summary: 'What one request cost, and what became of its payment',
    access: 'key or session',
    parameters: z.object({ id: requestId }),
    answer: request,
  }),
  deleteReplays: contract({
    operation: 'deleteReplays',
    method: 'DELETE',
    path: '/api/replays',
    summary:
      'Deletes the answers that are kept for retries: those of the API key or, with a session, of the whole account. A retry of such a request is served again and charged',
    access: 'key or session',
    answer: z.object({ object: z.literal('deletion'), deleted: z.int() }),
  }),
} as const
