import type { Series } from '../../charts/time-chart.tsx'

/** At most five series have a colour of their own; the rest is one grey "Other". */
const seriesMax = 5
export const otherColour = 'var(--series-other)'

/** In atomic units, for drawing alone. */
export const spendOf = ({ spend_atomic }: { readonly spend_atomic: string }) => Number(spend_atomic)

type Group<Point> = { readonly group: string; readonly label: string; readonly points: readonly Point[] }
type Measure<Point> = (point: Point) => number

/**
 * The groups that have a colour of their own, in the order of the colours: one choice for all charts of a page, so that a model looks
 * the same in each. The largest come first, each by the largest share that it has in any of the charts.
 */
export function colouredGroups<Point>(
  groups: readonly Group<Point>[],
  measures: readonly Measure<Point>[],
): readonly string[] {
  const wholes = measures.map((measure) => sum(groups.map((one) => totalOf(one, measure))))
  return groups
    .map((one) => ({
      group: one.group,
      share: Math.max(...measures.map((measure, at) => (wholes[at] === 0 ? 0 : totalOf(one, measure) / wholes[at]!))),
    }))
    .filter(({ share }) => share > 0)
    .sort((left, right) => right.share - left.share || (left.group < right.group ? -1 : 1))
    .slice(0, seriesMax)
    .map(({ group }) => group)
}

/** One chart's series, largest first. Groups without a colour are added up as "Other", so that the sum stays whole. */
export function foldSeries<Point>(
  groups: readonly Group<Point>[],
  measure: Measure<Point>,
  coloured: readonly string[],
): Series[] {
  const sized = groups
    .map((one) => ({ ...one, values: one.points.map(measure), total: totalOf(one, measure) }))
    .filter(({ total }) => total > 0)
    .sort((left, right) => right.total - left.total)
  const series = sized
    .filter(({ group }) => coloured.includes(group))
    .map(({ group, label, values }) => ({
      id: group || 'none',
      label: label || 'None',
      colour: `var(--series-${coloured.indexOf(group) + 1})`,
      values,
    }))
  const rest = sized.filter(({ group }) => !coloured.includes(group))
  if (rest.length === 0) return series
  const values = rest[0]!.values.map((_, at) => sum(rest.map((one) => one.values[at]!)))
  return [...series, { id: 'other', label: 'Other', colour: otherColour, values }]
}

function totalOf<Point>({ points }: Group<Point>, measure: Measure<Point>): number {
  return sum(points.map(measure))
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}
