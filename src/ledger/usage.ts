import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { rowsOf } from '../db/rows.ts'
import { fromAtomic, type Usdc, zero } from '../money/usdc.ts'
import { earliestRequestId } from './request-id.ts'

export const granularities = ['minute', 'hour', 'day'] as const
export type Granularity = (typeof granularities)[number]
export const usageGroups = ['none', 'model', 'key', 'component', 'status'] as const
export type UsageGroup = (typeof usageGroups)[number]

/** A period, its steps, and whose requests are counted. `from` and `to` lie on step boundaries. */
export type UsageQuestion = {
  readonly from: Date
  readonly to: Date
  readonly granularity: Granularity
  readonly models?: readonly string[] | undefined
  readonly keyIds?: readonly string[] | undefined
}

const amounts = ['charged', 'search', 'quote'] as const
const counts = [
  'succeeded',
  'failed',
  'cancelled',
  'refused',
  'promptTokens',
  'completionTokens',
  'reasoningTokens',
  'cachedTokens',
  'searchCalls',
  'fetchCalls',
  // The number of requests with a time to first token, and the sum of those times.
  'timed',
  'firstTokenMs',
  'totalMs',
] as const

/** Sums over the ended requests that were created in a period. */
export type Measures = Readonly<Record<(typeof amounts)[number], Usdc> & Record<(typeof counts)[number], number>>

export const noMeasures = measuresOf(
  () => zero,
  () => 0,
)

/** The sum of two periods that do not overlap. */
export function addMeasures(a: Measures, b: Measures): Measures {
  return measuresOf(
    (name) => fromAtomic(a[name] + b[name]),
    (name) => a[name] + b[name],
  )
}

function measuresOf(
  amountOf: (name: (typeof amounts)[number]) => Usdc,
  countOf: (name: (typeof counts)[number]) => number,
): Measures {
  const entries = [...amounts.map((name) => [name, amountOf(name)]), ...counts.map((name) => [name, countOf(name)])]
  return Object.fromEntries(entries) as Measures
}

export type UsageStep = { readonly start: Date; readonly group: string; readonly measures: Measures }

/** The groups with the highest charges are listed; the rest are summed as `otherGroup`. */
const groupsMax = 20
export const otherGroup = 'other'

/**
 * The sums of every non-empty step, by model or key. Hours and days come from the hourly sums, minutes from the rows. An account may have
 * a thousand keys and ask for hundreds of steps: small groups are summed here, so that the event loop never sees a row for each.
 */
export async function readUsage(
  database: Database,
  account: AccountRef,
  question: UsageQuestion,
  groupBy: 'none' | 'model' | 'key',
): Promise<readonly UsageStep[]> {
  const { from, to, granularity, models, keyIds } = question
  const group = { none: "''", model: 'u.model', key: 'u.key_id::text' }[groupBy]
  const rows = await rowsOf<StepRow>(
    database.query(
      `with steps as materialized (
       select date_trunc($3, u.hour, 'UTC') as start, ${group} as group_name, ${sums}
         from (${granularity === 'minute' ? minutes : hours}) u
        where ($6::text[] is null or u.model = any ($6)) and ($7::uuid[] is null or u.key_id = any ($7))
        group by 1, 2),
     largest as (
       select u.group_name from steps u group by 1
        order by sum(u.charged) desc, sum(u.succeeded + u.failed + u.cancelled + u.refused) desc, 1 limit ${groupsMax})
     select u.start, coalesce(l.group_name, '${otherGroup}') as group_name, ${shownSums}
       from steps u left join largest l on l.group_name = u.group_name
      group by 1, 2 order by 1, 2`,
      [
        account.partition,
        account.accountId,
        granularity,
        from,
        to,
        models ?? null,
        keyIds ?? null,
        ...(granularity === 'minute' ? idBounds(question) : []),
      ],
    ),
  )
  return rows.map(({ start, groupName, ...measures }) => ({ start, group: groupName, measures }))
}

export type UnsuccessfulCharges = {
  readonly start: Date
  readonly status: string
  readonly charged: Usdc
  readonly quote: Usdc
}

/** The charges of failed and cancelled requests, by step: the hourly sums have only their counts. */
export async function readUnsuccessfulCharges(
  database: Database,
  account: AccountRef,
  question: UsageQuestion,
): Promise<readonly UnsuccessfulCharges[]> {
  const { from, to, granularity, models, keyIds } = question
  return rowsOf<UnsuccessfulCharges>(
    database.query(
      `select date_bin($2, r.created_at, '2000-01-01T00:00:00Z') as start, r.status,
            sum(r.charged)::bigint as charged, sum(r.quote)::bigint as quote
       from requests r
      where r.account_id = $1 and r.status <> 'succeeded' and r.status <> 'refused'
        and r.id >= $7 and r.id < $8 and r.created_at >= $3 and r.created_at < $4
        and ($5::text[] is null or r.model = any ($5)) and ($6::uuid[] is null or r.key_id = any ($6))
      group by 1, 2`,
      // Steps of equal length need no calendar arithmetic, which is slow over a quarter of a million rows.
      [account.accountId, `1 ${granularity}`, from, to, models ?? null, keyIds ?? null, ...idBounds(question)],
    ),
  )
}

/**
 * Percentiles of a sample: the newest requests of each step. Requests that a restart interrupted are left out: their time measures
 * the outage.
 */
export type Latency = {
  readonly start: Date | undefined
  readonly group: string | undefined
  readonly requests: number
  readonly totalMsP50: number | undefined
  readonly totalMsP95: number | undefined
  readonly firstTokenMsP50: number | undefined
  readonly firstTokenMsP95: number | undefined
}

const sampledMax = 10_000

/** By step and group, by step, by group, and over all: `start` and `group` are undefined where they are summed over. */
export async function readLatency(
  database: Database,
  account: AccountRef,
  question: UsageQuestion,
  groupBy: 'none' | 'model' | 'key' | 'status',
): Promise<readonly Latency[]> {
  const { from, to, granularity, models, keyIds } = question
  const stepMs = { minute: 60_000, hour: 3_600_000, day: 86_400_000 }[granularity]
  const steps = Math.max(1, Math.round((to.getTime() - from.getTime()) / stepMs))
  const starts = Array.from({ length: steps }, (_, index) => new Date(from.getTime() + index * stepMs))
  const group = { none: "''", model: "coalesce(r.model, '')", key: 'r.key_id::text', status: 'r.status' }[groupBy]
  return rowsOf<Latency>(
    database.query(
      `with sample as materialized (
       select b.start, r.group_name, r.total_ms, r.first_token_ms
         from unnest($2::timestamptz[], $3::uuid[], $4::uuid[]) as b (start, first_id, last_id)
         cross join lateral (
           select ${group} as group_name, r.total_ms, r.first_token_ms from requests r
            where r.account_id = $1 and r.id >= b.first_id and r.id < b.last_id
              and r.status <> 'refused' and r.total_ms is not null and r.error_code is distinct from 'interrupted'
              and ($5::text[] is null or r.model = any ($5)) and ($6::uuid[] is null or r.key_id = any ($6))
            order by r.id desc limit $7) r)
     select start, group_name as "group", count(*)::int as requests,
            percentile_disc(0.5) within group (order by total_ms) as total_ms_p50,
            percentile_disc(0.95) within group (order by total_ms) as total_ms_p95,
            percentile_disc(0.5) within group (order by first_token_ms) as first_token_ms_p50,
            percentile_disc(0.95) within group (order by first_token_ms) as first_token_ms_p95
       from sample group by grouping sets ((start, group_name), (start), (group_name), ())`,
      [
        account.accountId,
        starts,
        starts.map((start) => earliestRequestId(start.getTime())),
        starts.map((start) => earliestRequestId(start.getTime() + stepMs)),
        models ?? null,
        keyIds ?? null,
        Math.ceil(sampledMax / steps),
      ],
    ),
  )
}

type RefusalCount = { readonly code: string; readonly count: number; readonly lastAt: Date }

/** How often a key's requests were refused, and why, newest reason first. */
export async function readRefusals(
  database: Database,
  account: AccountRef,
  keyId: string,
): Promise<readonly RefusalCount[]> {
  return rowsOf<RefusalCount>(
    database.query(
      `select coalesce(error_code, 'unknown') as code, count(*)::int as count, max(created_at) as last_at
       from (select error_code, created_at from requests
              where key_id = $1 and account_id = $2 and status = 'refused' order by id desc limit ${refusalsMax}) r
      group by 1 order by last_at desc`,
      [keyId, account.accountId],
    ),
  )
}

// The newest only: more would take a quarter of a second and add nothing.
const refusalsMax = 10_000

// The id bounds are wider than the period by the most that an id can differ from its row's time (request-log.ts).
function idBounds({ from, to }: UsageQuestion): readonly string[] {
  return [earliestRequestId(from.getTime() - 3_600_000), earliestRequestId(to.getTime() + 300_000)]
}

const hours = `select hour, key_id, model, succeeded, failed, cancelled, refused, quote, charged, search_cost, search_calls,
  fetch_calls, prompt_tokens, completion_tokens, reasoning_tokens, cached_tokens, timed, first_token_ms, total_ms
  from usage_hours where partition = $1 and account_id = $2 and hour >= $4 and hour < $5`

// `+ 0` keeps the planner off the primary key, which would read the rows of all accounts (request-log.ts).
const minutes = `select r.created_at as hour, r.key_id, coalesce(r.model, '') as model,
  (r.status = 'succeeded')::int as succeeded, (r.status = 'failed')::int as failed,
  (r.status = 'cancelled')::int as cancelled, (r.status = 'refused')::int as refused,
  r.quote, r.charged, r.search_cost, r.search_calls, r.fetch_calls, r.prompt_tokens, r.completion_tokens,
  r.reasoning_tokens, r.cached_tokens, (r.first_token_ms is not null)::int as timed, r.first_token_ms, r.total_ms
  from requests r where r.partition + 0 = $1 and r.account_id = $2 and r.id >= $8 and r.id < $9
   and r.created_at >= $4 and r.created_at < $5`

const columnOf = (name: string) =>
  name === 'search' ? 'search_cost' : name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
const sumOf = (name: string, type: string) => `coalesce(sum(u.${columnOf(name)}), 0)::${type} as`
/** Of all steps, and again of the small groups among them. */
const sums = [...amounts, ...counts].map((name) => `${sumOf(name, 'bigint')} ${columnOf(name)}`).join(', ')
const shownSums = [
  ...amounts.map((name) => `${sumOf(name, 'bigint')} ${name}`),
  ...counts.map((name) => `${sumOf(name, 'float8')} ${columnOf(name)}`),
].join(', ')

type StepRow = Measures & { readonly start: Date; readonly groupName: string }
