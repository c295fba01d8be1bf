import type { Series } from './time-chart.tsx'

// Which values of a chart can be read: a bar of zero cannot, a line at zero can.

export type ChartKind = 'bars' | 'lines'

export function isReadable(kind: ChartKind, value: number | null | undefined): boolean {
  return kind === 'lines' ? value !== null && value !== undefined : (value ?? 0) !== 0
}

/** Whether any series has something at this place. */
export function hasReading(kind: ChartKind, series: readonly Pick<Series, 'values'>[], at: number): boolean {
  return series.some(({ values }) => isReadable(kind, values[at]))
}

/** True if the chart has no data. */
export function isBlank(kind: ChartKind, series: readonly Pick<Series, 'values'>[]): boolean {
  return !series.some(({ values }) => values.some((value) => isReadable(kind, value)))
}
