import { z } from 'zod'
import { granularities, usageGroups } from '../../ledger/usage.ts'
import { contract } from '../contract.ts'
import { askedInstant, count, flag, instant, milliseconds, money, several, text, uuid } from '../shapes.ts'
import { request } from './requests.ts'

/** Sums over the requests created in a span of time. */
const measures = z
  .object({
    ...money('spend', 'inference', 'search', 'quote'),
    requests: count.meta({
      description: 'Ended requests: succeeded + failed + cancelled. Refused requests are counted separately',
    }),
    succeeded: count,
    failed: count,
    cancelled: count,
    refused: count,
    prompt_tokens: count,
    completion_tokens: count,
    reasoning_tokens: count,
    cached_tokens: count,
    search_calls: count,
    fetch_calls: count,
    total_ms_average: milliseconds.nullable(),
    first_token_ms_average: milliseconds.nullable(),
    latency: z
      .object({
        requests: count.meta({ description: 'Number of requests in the sample' }),
        total_ms_p50: milliseconds.nullable(),
        total_ms_p95: milliseconds.nullable(),
        first_token_ms_p50: milliseconds.nullable(),
        first_token_ms_p95: milliseconds.nullable(),
      })
      .nullable()
      .meta({ description: 'Only with latency=true' }),
  })
  .meta({ id: 'Measures' })

const granularity = z.enum(granularities)
const groupBy = z.enum(usageGroups)
const range = z.enum(['24h', '7d', '30d'])

const tile = z.object({
  value: z.number().nullable(),
  previous: z.number().nullable().meta({ description: 'In the previous period of the same length' }),
  sparkline: z.array(z.number().nullable()),
})

export const usageContracts = {
  getUsage: contract({
    operation: 'getUsage',
    method: 'GET',
    path: '/api/usage',
    summary: 'Get usage over time, for charts and tables',
    access: 'key or session',
    role: 'viewer',
    scope: 'usage:read',
    isHeavy: true,
    query: z.object({
      from: askedInstant
        .optional()
        .meta({ description: 'Default: 24 hours before `to`. Rounded down to the granularity' }),
      to: askedInstant.optional().meta({ description: 'Default: now. Exclusive; rounded up to the granularity' }),
      granularity: z.enum(['auto', ...granularities]).default('auto'),
      group_by: groupBy.default('none'),
      model: several(text(100)),
      key: several(uuid),
      latency: flag.default('false'),
    }),
    answer: z.object({
      object: z.literal('usage'),
      from: instant,
      to: instant,
      granularity,
      group_by: groupBy,
      buckets: z.array(
        z.object({ start: instant, partial: z.boolean().meta({ description: 'Not complete yet' }), total: measures }),
      ),
      series: z.array(
        z.object({
          group: z.string().meta({ description: 'A model, a key id, inference or search, or a status; "" means none' }),
          label: z.string(),
          total: measures,
          points: z.array(measures).meta({ description: 'One for each bucket, in the same order' }),
        }),
      ),
      total: measures,
    }),
  }),
  getOverview: contract({
    operation: 'getOverview',
    method: 'GET',
    path: '/api/overview',
    summary: 'Get the overview: tiles, burn rate, checklist and newest requests',
    access: 'session',
    role: 'viewer',
    scope: 'usage:read',
    isHeavy: true,
    query: z.object({ range: range.default('24h') }),
    answer: z.object({
      object: z.literal('overview'),
      range,
      from: instant,
      to: instant,
      tiles: z.object({
        spend: z.object({ ...money('value', 'previous'), sparkline_atomic: z.array(z.string()) }),
        requests: tile.meta({ description: 'Ended requests' }),
        refused: tile,
        prompt_tokens: tile,
        completion_tokens: tile,
        error_rate: tile.meta({ description: 'Failed and refused of all attempts (requests + refused), 0 to 1' }),
        total_ms_p95: tile,
      }),
      burn: z.object({
        ...money('per_day'),
        days_left: z.number().nullable().meta({ description: 'Null without spend' }),
      }),
      checklist: z.object({ funded: z.boolean(), key_created: z.boolean(), request_sent: z.boolean() }),
      recent: z.array(request),
      alerts: z.array(
        z.object({
          level: z.enum(['info', 'warning', 'error']),
          code: z.string(),
          message: z.string(),
          href: z.string(),
        }),
      ),
    }),
  }),
} as const
