/** At most five series have a colour of their own; the rest is one grey "Other". */
export const seriesMax = 5
export const otherColour = 'var(--series-other)'

export function seriesColour(at: number): string {
  return at < seriesMax ? `var(--series-${at + 1})` : otherColour
}
