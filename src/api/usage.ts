import { setImmediate as nextTurn } from 'node:timers/promises'
import type { AccountRef } from '../db/account-ref.ts'
import { listKeyNames } from '../identity/api-keys.ts'
import { endedStatuses } from '../ledger/states.ts'
import {
  addMeasures,
  type Granularity,
  type Latency,
  type Measures,
  noMeasures,
  otherGroup,
  readLatency,
  readUnsuccessfulCharges,
  readUsage,
  type UsageGroup,
  type UsageQuestion,
  type UsageStep,
} from '../ledger/usage.ts'
import { moneyFields } from '../money/money-fields.ts'
import { fromAtomic, zero } from '../money/usdc.ts'
import type { AnswerOf, QueryOf } from '../openapi/contract.ts'
import { usageContracts } from '../openapi/contracts/usage.ts'
import { unusable } from '../openapi/input-refusal.ts'
import type { ApiRouter } from './router.ts'
import type { ApiServices } from './services.ts'

type RenderedUsage = AnswerOf<typeof usageContracts.getUsage>
export type RenderedMeasures = RenderedUsage['total']

const minuteMs = 60_000
const hourMs = 60 * minuteMs
const dayMs = 24 * hourMs
export const stepMs = { minute: minuteMs, hour: hourMs, day: dayMs } as const
const stepsMax = 800
const minuteRangeMsMax = 3 * hourMs

export function routeUsage(router: ApiRouter, { database }: ApiServices): void {
  router.at(usageContracts.getUsage).answer(async ({ owner, query }) => {
    const question = questionOf(query, Date.now())
    // Components are parts of the same requests, so they have no latency of their own.
    const latencyGroup = query.group_by === 'component' ? 'none' : query.group_by
    const [steps, latencies, labels] = await Promise.all([
      stepsOf(owner, question, query.group_by),
      query.latency === 'true' ? readLatency(database, owner, question, latencyGroup) : undefined,
      query.group_by === 'key' ? listKeyNames(database, owner) : undefined,
    ])
    return renderUsage(question, query.group_by, steps, { latencies, labels, nowMs: Date.now() })
  })

  async function stepsOf(owner: AccountRef, question: UsageQuestion, group: UsageGroup): Promise<readonly UsageStep[]> {
    if (group === 'none' || group === 'model' || group === 'key') return readUsage(database, owner, question, group)
    const whole = await readUsage(database, owner, question, 'none')
    if (group === 'component') return whole.flatMap(byComponent)
    const unsuccessful = await readUnsuccessfulCharges(database, owner, question)
    const charges = new Map(unsuccessful.map((row) => [`${+row.start} ${row.status}`, row]))
    return whole.flatMap((step) => byStatus(step, (status) => charges.get(`${+step.start} ${status}`)))
  }
}

/** Chooses the step (minute, hour, day) of a query, and extends its range to full steps. */
export function questionOf(query: QueryOf<typeof usageContracts.getUsage>, nowMs: number): UsageQuestion {
  const toMs = query.to === undefined ? nowMs : Date.parse(query.to)
  const fromMs = query.from === undefined ? toMs - dayMs : Date.parse(query.from)
  if (fromMs >= toMs) throw unusable('from', 'it must be before "to"')
  const granularity = query.granularity === 'auto' ? granularityFor(toMs - fromMs) : query.granularity
  if (granularity === 'minute' && toMs - fromMs > minuteRangeMsMax + minuteMs) {
    throw unusable('granularity', 'the range is longer than 3 hours; use the granularity hour')
  }
  const step = stepMs[granularity]
  if ((toMs - fromMs) / step > stepsMax) {
    throw unusable('granularity', `more than ${stepsMax} steps; use a shorter range or a larger granularity`)
  }
  return {
    from: new Date(Math.floor(fromMs / step) * step),
    to: new Date(Math.ceil(toMs / step) * step),
    granularity,
    models: query.model,
    keyIds: query.key,
  }
}

function granularityFor(rangeMs: number): Granularity {
  if (rangeMs <= minuteRangeMsMax) return 'minute'
  return rangeMs <= 3 * dayMs ? 'hour' : 'day'
}

function byComponent({ start, measures }: UsageStep): UsageStep[] {
  const search = { ...noMeasures, charged: measures.search, search: measures.search, searchCalls: measures.searchCalls }
  const inference = {
    ...measures,
    charged: fromAtomic(measures.charged - measures.search),
    search: zero,
    searchCalls: 0,
  }
  return [
    { start, group: 'inference', measures: inference },
    { start, group: 'search', measures: search },
  ]
}

type Status = (typeof endedStatuses)[number]
type Charges = Pick<Measures, 'charged' | 'quote'>

/** Splits by status. Tokens and times are not stored per status: they count as succeeded. */
function byStatus({ start, measures }: UsageStep, chargesOf: (status: Status) => Charges | undefined): UsageStep[] {
  const none = { charged: zero, quote: zero }
  const failed = chargesOf('failed') ?? none
  const cancelled = chargesOf('cancelled') ?? none
  const counts = { succeeded: 0, failed: 0, cancelled: 0, refused: 0 }
  const of: Readonly<Record<Status, Measures>> = {
    succeeded: {
      ...measures,
      ...counts,
      charged: fromAtomic(measures.charged - failed.charged - cancelled.charged),
      quote: fromAtomic(measures.quote - failed.quote - cancelled.quote),
    },
    failed: { ...noMeasures, charged: failed.charged, quote: failed.quote },
    cancelled: { ...noMeasures, charged: cancelled.charged, quote: cancelled.quote },
    refused: noMeasures,
  }
  return endedStatuses
    .filter((status) => measures[status] > 0)
    .map((status) => ({ start, group: status, measures: { ...of[status], [status]: measures[status] } }))
}

type Extras = {
  readonly latencies: readonly Latency[] | undefined
  readonly labels: ReadonlyMap<string, string> | undefined
  readonly nowMs: number
}

async function renderUsage(
  question: UsageQuestion,
  groupBy: UsageGroup,
  steps: readonly UsageStep[],
  { latencies, labels, nowMs }: Extras,
): Promise<RenderedUsage> {
  const starts = startsOf(question)
  const shown = orderByCharge(steps)
  const placeOf = (start: Date | undefined, group: string | undefined) => `${start?.getTime()} ${group}`
  const latencyAt = new Map(latencies?.map((row) => [placeOf(row.start, row.group), row]))
  const empty = renderMeasures(noMeasures, latencies && 'none')
  const render = (measures: Measures, start: Date | undefined, group: string | undefined) => {
    const latency = latencyAt.get(placeOf(start, group))
    // Shared object: most points of a chart with many groups are empty.
    return measures === noMeasures && latency === undefined
      ? empty
      : renderMeasures(measures, latencies && (latency ?? 'none'))
  }
  const sumOf = (fitting: readonly UsageStep[]) =>
    fitting.map(({ measures }) => measures).reduce(addMeasures, noMeasures)
  const byStart = Map.groupBy(shown, ({ start }) => start.getTime())
  const series: RenderedUsage['series'][number][] = []
  for (const [group, own] of Map.groupBy(shown, ({ group }) => group)) {
    const ownByStart = Map.groupBy(own, ({ start }) => start.getTime())
    series.push({
      group,
      label: labels?.get(group) ?? (group === otherGroup ? 'Other' : group || 'None'),
      total: render(sumOf(own), undefined, group),
      points: starts.map((start) => render(sumOf(ownByStart.get(start.getTime()) ?? []), start, group)),
    })
    // Yield: hundreds of points per group would block the event loop, which also serves streams.
    await nextTurn()
  }
  return {
    object: 'usage',
    from: question.from.toISOString(),
    to: question.to.toISOString(),
    granularity: question.granularity,
    group_by: groupBy,
    buckets: starts.map((start) => ({
      start: start.toISOString(),
      partial: start.getTime() + stepMs[question.granularity] > nowMs,
      total: render(sumOf(byStart.get(start.getTime()) ?? []), start, undefined),
    })),
    series,
    total: render(sumOf(shown), undefined, undefined),
  }
}

function startsOf({ from, to, granularity }: UsageQuestion): Date[] {
  const step = stepMs[granularity]
  const count = Math.round((to.getTime() - from.getTime()) / step)
  return Array.from({ length: count }, (_, index) => new Date(from.getTime() + index * step))
}

/** Largest groups first, the sum of the others last. */
function orderByCharge(steps: readonly UsageStep[]): readonly UsageStep[] {
  const sums = new Map<string, { charged: bigint; attempts: number }>()
  for (const { group, measures } of steps) {
    const sum = sums.get(group) ?? { charged: 0n, attempts: 0 }
    const attempts = sum.attempts + requestsOf(measures) + measures.refused
    sums.set(group, { charged: sum.charged + measures.charged, attempts })
  }
  const ordered = [...sums].sort(([, a], [, b]) =>
    a.charged === b.charged ? b.attempts - a.attempts : a.charged < b.charged ? 1 : -1,
  )
  const place = new Map(ordered.map(([group], index) => [group, group === otherGroup ? ordered.length : index]))
  return steps.toSorted((a, b) => place.get(a.group)! - place.get(b.group)!)
}

/** Admitted requests. Refused ones held and cost nothing; every page and report counts them separately. */
export function requestsOf({ succeeded, failed, cancelled }: Measures): number {
  return succeeded + failed + cancelled
}

function renderMeasures(measures: Measures, latency: Latency | 'none' | undefined): RenderedMeasures {
  const requests = requestsOf(measures)
  return {
    ...moneyFields({
      spend: measures.charged,
      inference: fromAtomic(measures.charged - measures.search),
      search: measures.search,
      quote: measures.quote,
    }),
    requests,
    succeeded: measures.succeeded,
    failed: measures.failed,
    cancelled: measures.cancelled,
    refused: measures.refused,
    prompt_tokens: measures.promptTokens,
    completion_tokens: measures.completionTokens,
    reasoning_tokens: measures.reasoningTokens,
    cached_tokens: measures.cachedTokens,
    search_calls: measures.searchCalls,
    fetch_calls: measures.fetchCalls,
    total_ms_average: requests === 0 ? null : Math.round(measures.totalMs / requests),
    first_token_ms_average: measures.timed === 0 ? null : Math.round(measures.firstTokenMs / measures.timed),
    latency: latency === undefined ? null : renderLatency(latency === 'none' ? undefined : latency),
  }
}

function renderLatency(latency: Latency | undefined): NonNullable<RenderedMeasures['latency']> {
  return {
    requests: latency?.requests ?? 0,
    total_ms_p50: latency?.totalMsP50 ?? null,
    total_ms_p95: latency?.totalMsP95 ?? null,
    first_token_ms_p50: latency?.firstTokenMsP50 ?? null,
    first_token_ms_p95: latency?.firstTokenMsP95 ?? null,
  }
}
