import type { Series } from '../../charts/time-chart.tsx'

/** At most five series have a colour of their own; the rest is one grey "Other". */
const seriesMax = 5
export const otherColour = 'var(--series-other)'

/** In atomic units, for drawing alone. */
export const spendOf = ({ spend_atomic }: { readonly spend_atomic: string }) => Number(spend_atomic)

type Group<Point> = { readonly group: string; readonly label: string; readonly points: readonly Point[] }
type Measure<Point> = (point: Point) => number

export const statusColours: Readonly<Record<string, string>> = {
  succeeded: 'var(--series-1)',
  cancelled: otherColour,
  failed: 'var(--color-error)',
  refused: 'var(--series-3)',
}

/**
 * The groups that have a colour of their own, each at the place of its colour. They are the largest, each by the largest share that it
 * has in any of the charts. The place of a group depends on its name alone, or on its place in `order`, so that a model has the same
 * colour on every page and in every range; only of two groups with the same place, the second one takes the next free place.
 */
export function colouredGroups<Point>(
  groups: readonly Group<Point>[],
  measures: readonly Measure<Point>[],
  order: readonly string[] = [],
): readonly (string | undefined)[] {
  const wholes = measures.map((measure) => sum(groups.map((one) => totalOf(one, measure))))
  const chosen = groups
    .map((one) => ({
      group: one.group,
      share: Math.max(...measures.map((measure, at) => (wholes[at] === 0 ? 0 : totalOf(one, measure) / wholes[at]!))),
    }))
    .filter(({ share }) => share > 0)
    .sort((left, right) => right.share - left.share || (left.group < right.group ? -1 : 1))
    .slice(0, seriesMax)
    .map(({ group }) => ({ group, rank: order.includes(group) ? order.indexOf(group) : order.length + hash(group) }))
    .sort((left, right) => left.rank - right.rank || (left.group < right.group ? -1 : 1))
  const places = Array<string | undefined>(seriesMax).fill(undefined)
  for (const { group, rank } of chosen) {
    let place = rank % seriesMax
    while (places[place] !== undefined) place = (place + 1) % seriesMax
    places[place] = group
  }
  return places
}

function hash(text: string): number {
  return [...text].reduce((value, character) => (value * 31 + character.charCodeAt(0)) % 65_521, 7)
}

/** One chart's series, in the order of the colours. Groups without a colour are added up as "Other", so that the sum stays whole. */
export function foldSeries<Point>(
  groups: readonly Group<Point>[],
  measure: Measure<Point>,
  coloured: readonly (string | undefined)[],
  colours: Readonly<Record<string, string>> = {},
): Series[] {
  const sized = groups
    .map((one) => ({ ...one, values: one.points.map(measure), total: totalOf(one, measure) }))
    .filter(({ total }) => total > 0)
    .sort((left, right) => coloured.indexOf(left.group) - coloured.indexOf(right.group))
  const series = sized
    .filter(({ group }) => coloured.includes(group))
    .map(({ group, label, values }) => ({
      id: group || 'none',
      label: label || 'None',
      colour: colours[group] ?? `var(--series-${coloured.indexOf(group) + 1})`,
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
