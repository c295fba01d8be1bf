import { listAlerts } from '../alerts/alerts.ts'
import type { AccountRef } from '../db/account-ref.ts'
import { countKeys } from '../identity/api-keys.ts'
import { readBalance } from '../ledger/balance.ts'
import { listRequests } from '../ledger/request-log.ts'
import {
  addMeasures,
  type Granularity,
  type Latency,
  type Measures,
  noMeasures,
  readLatency,
  readUsage,
  type UsageStep,
} from '../ledger/usage.ts'
import { moneyFields } from '../money/money-fields.ts'
import { fromAtomic, type Usdc, zero } from '../money/usdc.ts'
import type { AnswerOf } from '../openapi/contract.ts'
import { usageContracts } from '../openapi/contracts/usage.ts'
import { alertHref } from './alerts.ts'
import { renderRequest } from './render-request.ts'
import type { ApiRouter } from './router.ts'
import type { ApiServices } from './services.ts'
import { requestsOf, stepMs } from './usage.ts'

type RenderedOverview = AnswerOf<typeof usageContracts.getOverview>
type Tile = RenderedOverview['tiles']['requests']

const ranges: Readonly<Record<RenderedOverview['range'], { steps: number; granularity: Granularity }>> = {
  '24h': { steps: 24, granularity: 'hour' },
  '7d': { steps: 7, granularity: 'day' },
  '30d': { steps: 30, granularity: 'day' },
}
const recentMax = 8
const burnDays = 7
const dayMs = stepMs.day

export function routeOverview(router: ApiRouter, { database }: ApiServices): void {
  router.at(usageContracts.getOverview).answer(async ({ owner, query, keysMadeBy }) => {
    const { steps, granularity } = ranges[query.range]
    const step = stepMs[granularity]
    const end = Math.ceil(Date.now() / step) * step
    const from = new Date(end - steps * step)
    const to = new Date(end)
    const before = new Date(end - 2 * steps * step)
    const [usage, latency, earlierLatency, burn, balance, alerts, keys, recent] = await Promise.all([
      readUsage(database, owner, { from: before, to, granularity }, 'none'),
      readLatency(database, owner, { from, to, granularity }, 'none'),
      readLatency(database, owner, { from: before, to: from, granularity }, 'none'),
      readBurn(owner),
      readBalance(database, owner),
      listAlerts(database, owner, 'open', keysMadeBy),
      countKeys(database, owner, keysMadeBy),
      listRequests(database, owner, {}, { limit: recentMax }),
    ])
    const starts = Array.from({ length: steps }, (_, index) => from.getTime() + index * step)
    const burning = burnOf(burn, balance.available)
    return {
      object: 'overview',
      range: query.range,
      from: from.toISOString(),
      to: to.toISOString(),
      tiles: tilesOf(usage, starts, { latency, earlierLatency }),
      burn: { ...moneyFields({ per_day: burning.perDay }), days_left: burning.daysLeft },
      checklist: {
        funded: balance.deposited > 0n,
        key_created: keys > 0,
        request_sent: recent.rows.some(({ status }) => status !== 'refused') || balance.charged > 0n,
      },
      recent: recent.rows.map(renderRequest),
      alerts: alerts.map((alert) => ({
        level: alert.level,
        code: alert.kind,
        message: alert.message,
        href: alertHref(alert),
      })),
    }
  })

  /** Hourly usage of the last week, for the burn rate. */
  function readBurn(owner: AccountRef): Promise<readonly UsageStep[]> {
    const to = new Date(Math.ceil(Date.now() / stepMs.hour) * stepMs.hour)
    return readUsage(
      database,
      owner,
      { from: new Date(to.getTime() - burnDays * dayMs), to, granularity: 'hour' },
      'none',
    )
  }
}

type Latencies = { readonly latency: readonly Latency[]; readonly earlierLatency: readonly Latency[] }

function tilesOf(
  usage: readonly UsageStep[],
  starts: readonly number[],
  { latency, earlierLatency }: Latencies,
): RenderedOverview['tiles'] {
  const now = usage.filter(({ start }) => start.getTime() >= starts[0]!)
  const earlier = usage.filter(({ start }) => start.getTime() < starts[0]!)
  const total = sum(now)
  const previous = sum(earlier)
  const points = starts.map((start) => sum(now.filter((step) => step.start.getTime() === start)))
  const tile = (read: (measures: Measures) => number | null): Tile => ({
    value: read(total),
    previous: read(previous),
    sparkline: points.map(read),
  })
  const wholeP95 = (rows: readonly Latency[]) =>
    rows.find(({ start, group }) => start === undefined && group === undefined)?.totalMsP95 ?? null
  return {
    spend: {
      ...moneyFields({ value: total.charged, previous: previous.charged }),
      sparkline_atomic: points.map(({ charged }) => charged.toString()),
    },
    requests: tile(requestsOf),
    refused: tile(({ refused }) => refused),
    prompt_tokens: tile(({ promptTokens }) => promptTokens),
    completion_tokens: tile(({ completionTokens }) => completionTokens),
    error_rate: tile(errorRate),
    total_ms_p95: {
      value: wholeP95(latency),
      previous: wholeP95(earlierLatency),
      sparkline: starts.map(
        (start) => latency.find((row) => row.start?.getTime() === start && row.group === undefined)?.totalMsP95 ?? null,
      ),
    },
  }
}

function sum(steps: readonly UsageStep[]): Measures {
  return steps.map(({ measures }) => measures).reduce(addMeasures, noMeasures)
}

function errorRate(measures: Measures): number | null {
  const attempts = requestsOf(measures) + measures.refused
  return attempts === 0 ? null : (measures.failed + measures.refused) / attempts
}

type Burning = { readonly perDay: Usdc; readonly daysLeft: number | null }

/** Spend per day since the first spend of the last week, over at least one day: a busy first hour must not count as a busy day. */
function burnOf(hours: readonly UsageStep[], available: Usdc): Burning {
  const [first] = hours
  if (first === undefined) return { perDay: zero, daysLeft: null }
  const spent = sum(hours).charged
  const spanMs = BigInt(Math.max(dayMs, Date.now() - first.start.getTime()))
  const perDay = fromAtomic((spent * BigInt(dayMs)) / spanMs)
  return { perDay, daysLeft: perDay === 0n ? null : Number((available * 10n) / perDay) / 10 }
}
