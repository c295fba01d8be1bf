import { formatSpan } from '../../ui/format-time.ts'

// The span of time that the usage page shows, in its address.

export const presets = [
  ['3h', '3 h'],
  ['24h', '24 h'],
  ['7d', '7 d'],
  ['30d', '30 d'],
  ['90d', '90 d'],
] as const

export type Preset = (typeof presets)[number][0]
export type UsageRange = Preset | { readonly from: string; readonly to: string }

const hourMs = 3_600_000
const spans: Readonly<Record<Preset, number>> = {
  '3h': 3 * hourMs,
  '24h': 24 * hourMs,
  '7d': 7 * 24 * hourMs,
  '30d': 30 * 24 * hourMs,
  '90d': 90 * 24 * hourMs,
}

export function parseUsageRange(search: Readonly<Record<string, string | undefined>>): UsageRange {
  const { from, to, range } = search
  if (isDay(from) && isDay(to) && from <= to) return { from, to }
  return presets.find(([preset]) => preset === range)?.[0] ?? '7d'
}

/**
 * A preset never begins before the account did: there is nothing to see there, and the service chooses minutes, hours or days by
 * the length of the span. Chosen days are UTC days, both included, as the ledger counts them.
 */
export function usageSpan(
  range: UsageRange,
  nowMs: number,
  accountCreatedAt: string | undefined,
): { from: string; to?: string } {
  if (typeof range === 'string') return { from: fromWithinAccount(nowMs - spans[range], nowMs, accountCreatedAt) }
  const end = Date.parse(`${range.to}T00:00:00Z`) + 24 * hourMs
  return { from: `${range.from}T00:00:00.000Z`, to: new Date(end).toISOString() }
}

/** Says so when a preset begins with the account: the axis then shows less than the selected range. */
export function spanNote(range: UsageRange, from: string, granularity: string, nowMs: number): string | undefined {
  const shownMs = nowMs - Date.parse(from)
  if (typeof range !== 'string' || shownMs >= spans[range]) return undefined
  return `First ${formatSpan(shownMs)} of the account, by ${granularity}`
}

/** How often a page that stays open moves the start of its preset, so that "24 h" does not grow to days. */
export const spanRenewMs = 5 * 60_000

const shortestMs = 15 * 60_000

/** The start of a span, cut to the minute so that it stays the same for a while, and not before the account's first hour. */
export function fromWithinAccount(fromMs: number, nowMs: number, accountCreatedAt: string | undefined): string {
  const bornMs = accountCreatedAt === undefined ? 0 : Math.min(Date.parse(accountCreatedAt), nowMs - shortestMs)
  return new Date(Math.floor(Math.max(fromMs, bornMs) / 60_000) * 60_000).toISOString()
}

/** A year that is being typed begins as 0002. */
function isDay(text: string | undefined): text is string {
  return text !== undefined && /^2\d{3}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(text))
}
