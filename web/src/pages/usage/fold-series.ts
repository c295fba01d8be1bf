import { otherColour, seriesColour, seriesMax } from '../../charts/colours.ts'
import type { Series } from '../../charts/time-chart.tsx'

type Group<Point> = { readonly group: string; readonly label: string; readonly points: readonly Point[] }

/** The largest five have a colour each; the rest is added up as "Other", so that the sum stays whole. */
export function foldSeries<Point>(groups: readonly Group<Point>[], measure: (point: Point) => number): Series[] {
  const sized = groups
    .map((one) => ({ ...one, values: one.points.map(measure) }))
    .map((one) => ({ ...one, total: one.values.reduce((sum, value) => sum + value, 0) }))
    .filter(({ total }) => total > 0)
    .sort((left, right) => right.total - left.total)
  const series = sized.slice(0, seriesMax).map(({ group, label, values }, at) => ({
    id: group || 'none',
    label: label || 'None',
    colour: seriesColour(at),
    values,
  }))
  const rest = sized.slice(seriesMax)
  if (rest.length === 0) return series
  const values = rest[0]!.values.map((_, at) => rest.reduce((sum, one) => sum + one.values[at]!, 0))
  return [...series, { id: 'other', label: 'Other', colour: otherColour, values }]
}
