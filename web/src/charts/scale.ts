import type { Usage } from '../api/shapes.ts'

// Positions in a chart. These numbers are for drawing only; labels show amounts from the ledger.

const stepsMax = 4

/**
 * Round steps from zero to at least the highest value: 1, 2 or 5 times a power of ten. Counts use
 * steps of at least 1 (`stepMin`): a tick at 0.5 would be rounded, and its label shown twice.
 */
export function ticks(highest: number, stepMin = 0): readonly number[] {
  if (!(highest > 0)) return [0, 1]
  const rough = Math.max(highest / stepsMax, stepMin)
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10)
  const count = Math.ceil(highest / step - 1e-9)
  return Array.from({ length: count + 1 }, (_, at) => at * step)
}

export type Granularity = Usage['granularity']

export const granularityMs: Readonly<Record<Granularity, number>> = { minute: 60_000, hour: 3_600_000, day: 86_400_000 }

/** The time range of a bar, as a filter of the request log. */
export function bucketSpan(
  { start }: { readonly start: string },
  granularity: Granularity,
): { from: string; to: string } {
  const startMs = Date.parse(start)
  return { from: new Date(startMs).toISOString(), to: new Date(startMs + granularityMs[granularity]).toISOString() }
}

const formats = {
  minute: new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' }),
  hour: new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' }),
  day: new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', timeZone: 'UTC' }),
}
const hourAndDay = new Intl.DateTimeFormat('en-GB', {
  day: 'numeric',
  month: 'short',
  hour: '2-digit',
  minute: '2-digit',
})

/** The short name of a bucket under the axis. Days are the ledger's days, in UTC. */
export function bucketLabel(start: string, granularity: Granularity): string {
  return formats[granularity].format(new Date(start))
}

/** Its full name, for tooltips and tables. */
export function bucketName(start: string, granularity: Granularity): string {
  const date = new Date(start)
  return granularity === 'day' ? `${formats.day.format(date)} (UTC)` : hourAndDay.format(date)
}

/** Which buckets get a name under the axis, so that names never touch. */
export function labelledBuckets(count: number, width: number, labelWidth = 64): readonly number[] {
  if (count === 0) return []
  const step = Math.max(1, Math.ceil((count * labelWidth) / Math.max(width, labelWidth)))
  return Array.from({ length: Math.ceil(count / step) }, (_, at) => at * step)
}
