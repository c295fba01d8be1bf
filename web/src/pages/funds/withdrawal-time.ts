import { formatSpan } from '../../ui/format-time.ts'

/** How long a withdrawal usually takes, and how we know. At least one second: withdrawals are polled that often. */
export function usualTime({ median_ms, median_of }: { median_ms: number | null; median_of: number }): string {
  if (median_ms === null) return 'We can’t estimate the arrival time yet: this is the first withdrawal.'
  const span = formatSpan(Math.max(1000, median_ms))
  return median_of === 1
    ? `Usually about ${span}, based on the one withdrawal made so far.`
    : `Usually about ${span}, the median of the last ${median_of} withdrawals.`
}
