import { formatSpan } from '../../ui/format-time.ts'

/** How long a withdrawal usually takes, and how we know. A second is the least we say: they are looked after that often. */
export function usualTime({ median_ms, median_of }: { median_ms: number | null; median_of: number }): string {
  if (median_ms === null)
    return 'We order it at the gateway within a second. How long it takes to arrive is not known yet: it is the first here.'
  const span = formatSpan(Math.max(1000, median_ms))
  return median_of === 1
    ? `Usually ${span}: so long the only withdrawal here took.`
    : `Usually ${span}: half of the last ${median_of} withdrawals here took no longer.`
}
