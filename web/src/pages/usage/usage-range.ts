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

/** Chosen days are UTC days, both included, as the ledger counts them. */
export function usageSpan(range: UsageRange, nowMs: number): { from: string; to?: string } {
  if (typeof range === 'string') {
    const minute = Math.floor(nowMs / 60_000) * 60_000
    return { from: new Date(minute - spans[range]).toISOString() }
  }
  const end = Date.parse(`${range.to}T00:00:00Z`) + 24 * hourMs
  return { from: `${range.from}T00:00:00.000Z`, to: new Date(end).toISOString() }
}

function isDay(text: string | undefined): text is string {
  return text !== undefined && /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(text))
}
