export function median(values: readonly number[]): number {
  const sorted = [...values].sort((one, other) => one - other)
  const middle = Math.floor(sorted.length / 2)
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
}

/** For each column the median of the rounds, and the median of its ratios to the same rounds without. */
export function besideWithout<Sample>(
  own: readonly Sample[],
  without: readonly Sample[],
  columns: Readonly<Record<string, (sample: Sample) => number>>,
): Record<string, number> {
  const rows = Object.entries(columns).flatMap(([name, read]) => [
    [name, round(median(own.map(read)))],
    [
      `${name.replace(/_(ms|us)$/, '')}/without`,
      round(median(own.map((sample, turn) => read(sample) / read(without[turn]!)))),
    ],
  ])
  return Object.fromEntries(rows)
}

/** The smallest and the largest value: a median alone hides how much the machine disturbed it. */
export function range(values: readonly number[]): string {
  return `${round(Math.min(...values))} to ${round(Math.max(...values))}`
}

/** Three digits are more than any of these numbers deserves. */
export function round(value: number): number {
  return Number(value.toPrecision(3))
}
